"""What the gateway tells about itself: log events, metrics and the live feed.

The catalogues (:mod:`events`, :mod:`series`) name everything that may be told; the pages under ``docs/`` are made from
them.  Nothing here decides anything, and no text of a prompt or an answer, no key and no token passes through.
"""
