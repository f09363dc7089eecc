"""Reasoning as the client wants it: renamed, dropped, named, set aside or inlined, in streams and whole bodies.

Station relay, before the write, chosen once per request and never for ``pass``.  Pure machines: whole events in, whole
events out.  What an edit does not mean comes back byte for byte; of what it means the values that it does not need stay
raw.  Must not measure: the tap sees what the engine sent.
"""
