"""Pure decisions: machines that take events and instants as arguments and hand back values.

No clock, no I/O, no logs, no tasks, no module state: whatever a machine needs comes in as an argument, whatever it
wants done leaves as data.  So every machine can be replayed, compared and fuzzed without a server around it.
"""
