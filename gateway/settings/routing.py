"""How a pool's requests are spread, and what is done about requests that engines die of.

Not a station.  Parts of the runtime settings.  Names and defaults are those of the policies that workers get
(``gateway.core.routing.policy``).
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from gateway.core.routing.policy import PoisonPolicy, RoutingPolicy
from gateway.settings.section import Section
from gateway.settings.types import CountOrNone, Seconds, SecondsOrOff, Share

_ROUTING: Final = RoutingPolicy()
_POISON: Final = PoisonPolicy()


class Routing(Section):
    """Which backend of the pool gets a request."""

    policy: Literal["least-in-flight", "power-of-two", "session", "measured-rate"] = Field(
        "least-in-flight",
        description="`least-in-flight`: where the fewest requests are, the safe choice for equal engines. `power-of-two`: "
        "the emptier of two drawn ones, for many gateways in front of the same engines. `session`: the same backend for "
        "the same `X-Session-Id`, else for prompts that begin alike, so that its prefix cache serves; a backend with "
        "more than 1.25 times the mean passes its sessions on. `measured-rate`: where one more stream is predicted to "
        "be fastest by what each engine was measured to do, for unequal engines.",
    )
    prefix_bytes: CountOrNone = Field(
        _ROUTING.prefix_bytes,
        description="For `session`: how many bytes of `messages` or `prompt`, as they came, stand for the session "
        "where there is no `X-Session-Id`. Enough to tell conversations apart, and few enough that the next turn of one "
        "begins with the same. Set it above the length of a system prompt that all share. 0: by the header alone.",
    )
    slow_start_s: SecondsOrOff = Field(
        _ROUTING.slow_start_s,
        description="How long the share of a backend grows that begins to serve, or does so again; from a tenth of its "
        "part. A fresh vLLM engine is slow for about so long. No effect where all backends are equally new. 0: off.",
    )
    max_ejected: Share = Field(
        _ROUTING.max_ejected,
        description="The part of the pool that failing requests may eject; one backend remains in any case. What fails "
        "everywhere is hardly the backends' fault. Failed probes are not bounded by it.",
    )


class Poison(Section):
    """Requests that engines die of are refused for a while, so that one request cannot take the whole fleet down."""

    deaths: CountOrNone = Field(
        _POISON.deaths,
        description="At how many outages of backends a request must have been in flight. Two, since at one there were "
        "others as well. 0: never refused.",
    )
    quarantine_s: Seconds = Field(
        _POISON.quarantine_s,
        description="How long such a request is refused (422, code `quarantined`), and how long one death is remembered. "
        "Long enough to outlive the retries of a client, short enough to be no blocklist.",
    )
