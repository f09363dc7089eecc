"""How one answer is framed, counted and timed while it passes through: the measuring heart of the relay station.

`tap.Tap` is the machine that the relay feeds; `summary` holds what it hands back; `outcome` turns the end of a
request into the one word that is recorded.  Bytes on their way to the client never pass through this package's
measuring part: it reads a copy of what was already written, and nothing that it finds can disturb a stream.
"""
