"""The two ways to an engine, and how tests ask for gateways of their own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tests.live.rig.engine import Engine
from tests.live.rig.gateway import Gateway


@dataclass(frozen=True, slots=True)
class Served:
    """A way to the healthy engine: straight to it, or through the gateway."""

    way: str
    port: int

    @property
    def base_url(self) -> str:
        """What a client of the OpenAI API is told."""
        return f"http://127.0.0.1:{self.port}/v1"


class GatewayMaker(Protocol):
    """Starts a gateway and waits until it serves; `runtime` are settings beyond the usual ones."""

    def __call__(self, name: str, behind: Sequence[Engine], runtime: Mapping[str, Any] | None = None) -> Gateway: ...
