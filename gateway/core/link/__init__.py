"""Typed messages between workers and control, and their framing.

Pure: no clock, no I/O, no logs.  Part of the core floor; imports nothing above it.
"""
