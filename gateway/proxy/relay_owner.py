"""Station relay, its way out: whom a relay tells that the upstream body is over.

An interface only; :class:`gateway.proxy.forward.Exchange` is what stands behind it.
"""

from __future__ import annotations

from typing import Protocol

from gateway.core.stream.summary import Ending


class RelayOwner(Protocol):
    """The exchange, as its relay sees it."""

    def finish(self, ending: Ending) -> None:
        """The exchange is over."""
        ...

    def take_turns(self) -> None:
        """A large read has been dealt with; others should be before the next one."""
        ...
