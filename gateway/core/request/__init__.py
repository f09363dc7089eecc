"""What a client asked for: the body parsed once at its top level.

Pure: no clock, no I/O, no logs.  Part of the core floor; imports nothing above it.
"""
