"""Open descriptors: as many as the host allows, for this process and the children that inherit it.

The usual soft limit of 1,024 is a courtesy to programs that use select(); a stream takes two descriptors, so a worker
would be out of them at 500 streams.  Must not fail: a limit that cannot be raised is served with.
"""

from __future__ import annotations

import resource


def raise_descriptor_limit() -> int:
    """Raise the soft limit to the hard one; returns what it is now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
