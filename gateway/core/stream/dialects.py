"""What tells the dialects' streams apart on the wire.

Station relay.  Data only.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gateway.core.stream.summary import Dialect

OPENINGS: Final[Mapping[Dialect, bytes]] = MappingProxyType(
    {
        Dialect.CHAT: b"\r\ndata: ",
        Dialect.COMPLETIONS: b"\r\ndata: ",
        Dialect.RESPONSES: b"\r\nevent: ",
        Dialect.MESSAGES: b"\r\nevent: ",
    }
)
"""End of a chunk's size line and the beginning of the dialect's usual event: comments never look like it."""

DONE_DIALECTS: Final = frozenset({Dialect.CHAT, Dialect.COMPLETIONS})
"""Those whose streams end with ``data: [DONE]``."""
