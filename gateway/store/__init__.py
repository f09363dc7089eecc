"""The history store: every settled request's numbers, kept on disk, found again, and forgotten in time.

`history.py` is the face that the event loop sees, `writer.py` the thread that owns the connection, `database.py` what
that thread can do with it; `opening.py` decides what may be opened, moved aside or refused.  Holds numbers and names,
never a text of a prompt or an answer.
"""
