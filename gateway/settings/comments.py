"""Comments to clients while a stream is silent.

Not a station.  Part of the runtime settings.  Names and defaults are those of the policy that workers get
(``gateway.core.routing.snapshot``).
"""

from __future__ import annotations

from typing import Final

from pydantic import Field

from gateway.core.routing.snapshot import CommentPolicy
from gateway.settings.section import Section
from gateway.settings.types import SecondsOrOff, Switch

_COMMENTS: Final = CommentPolicy()


class Comments(Section):
    """SSE comments (`ping` events for Messages) that keep a silent stream from being taken for dead."""

    first_s: SecondsOrOff = Field(
        _COMMENTS.first_s,
        description="Without a first event for this long, counted from the whole request, waiting in a queue and for a "
        "connection included, the answer's head goes out with a comment; from then on a failure can only be told inside the "
        "stream, not by a status. 0: never before the first event.",
    )
    every_s: SecondsOrOff = Field(
        _COMMENTS.every_s,
        description="Between two events. Below the 30 or 60 s after which proxies and clients give a silent "
        "connection up. 0: off.",
    )
    untouched: Switch = Field(
        _COMMENTS.untouched,
        description="Also in streams that are relayed byte for byte as the engine sent them. Off, since those carry "
        "nothing of the gateway's unasked; what hides reasoning from a client has comments in any case. A key may "
        "say otherwise for its own requests (`defaults.comments` in the file of keys).",
    )
