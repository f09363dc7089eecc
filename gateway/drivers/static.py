"""The driver of a backend that somebody else runs: it is watched and routed to, never started or stopped.

So an engine behind a static backend outlives its removal from the configuration, and what it is doing can be told by
probes alone.
"""

from __future__ import annotations

from typing import Final


class StaticDriver:
    """Implements :class:`gateway.ports.Driver`; has no state."""

    name: Final = "static"
    manages: Final = False
