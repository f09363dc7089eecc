"""Who may serve a request: backend states, snapshot, selection, retry, header and endpoint policy.

Pure: no clock, no I/O, no logs.  Part of the core floor; imports nothing above it.
"""
