"""Who may enter: limits as pure decisions.

Pure: no clock, no I/O, no logs.  Part of the core floor; imports nothing above it.
"""
