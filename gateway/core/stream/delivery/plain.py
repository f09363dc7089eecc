"""The usual chat event of vLLM, told by its bytes: one choice, one piece of text in one channel, nothing else.

Inside the edits of chat.  Nearly every event is of this kind, and cutting it where it changes costs a quarter of taking
its JSON apart.  An unescaped quote never stands inside of a JSON string, so what is matched is what it seems to be; an
event of any other spelling is simply not plain.
"""

from __future__ import annotations

import re
from typing import Final

from gateway.core.stream.delivery.mode import Channel

_CHOICES: Final = b'"choices":[{"index":'
_PLAIN: Final = re.compile(
    rb'"choices":\[\{"index":([0-9]{1,5}),"delta":\{"(reasoning|content)":"([^"\\]*(?:\\.[^"\\]*)*)"\}'
    rb'(?:,"logprobs":null)?,"finish_reason":null(?:,"stop_reason":null)?(?:,"token_ids":null)?\}\]\}\n\n\Z'
)
_REASONING: Final = b"reasoning"


class Plain:
    """Where such an event has its parts; owner: one look at it."""

    __slots__ = ("_event", "_match", "channel")

    def __init__(self, event: bytes, match: re.Match[bytes]) -> None:
        self._event = event
        self._match = match
        self.channel = Channel.REASONING if match[2] == _REASONING else Channel.CONTENT

    @property
    def index(self) -> int:
        """The choice."""
        return int(self._match[1])

    @property
    def inside(self) -> bytes:
        """Its text: the inside of a JSON string, never empty."""
        return self._match[3]

    def renamed(self, name: bytes, *, before: bytes = b"") -> bytes:
        """The event with its text under ``name`` and after ``before``."""
        match, event = self._match, self._event
        return event[: match.start(2)] + name + b'":"' + before + event[match.start(3) :]

    def doubled(self, first: bytes, second: bytes) -> bytes:
        """The event with its text under two names."""
        match, event = self._match, self._event
        text = b'":"' + match[3] + b'"'
        return event[: match.start(2)] + first + text + b',"' + second + text + event[match.end(3) + 1 :]


def plain(event: bytes) -> Plain | None:
    """The parts of a plain event; None for any other."""
    at = event.find(_CHOICES)
    if at < 0 or not event.startswith(b"data: {"):
        return None
    match = _PLAIN.match(event, at)
    return Plain(event, match) if match is not None and match[3] else None
