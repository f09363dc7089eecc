"""What tells the dialects' streams apart on the wire.

Station relay.  Data only.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gateway.core.stream.http1 import short_beginnings
from gateway.core.stream.summary import Dialect

_DATA: Final = short_beginnings(b"\r\ndata: ")
_EVENT: Final = short_beginnings(b"\r\nevent: ")

BEGINNINGS: Final[Mapping[Dialect, tuple[bytes, ...]]] = MappingProxyType(
    {
        Dialect.CHAT: _DATA,
        Dialect.COMPLETIONS: _DATA,
        Dialect.RESPONSES: _EVENT,
        Dialect.MESSAGES: _EVENT,
        Dialect.TRANSCRIPTION: _DATA,
    }
)
"""How a read of the dialect's usual event begins, by its length: comments never look like it."""

DONE_DIALECTS: Final = frozenset({Dialect.CHAT, Dialect.COMPLETIONS, Dialect.TRANSCRIPTION})
"""Those whose streams end with ``data: [DONE]``."""
