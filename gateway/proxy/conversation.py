"""The reading half of one connection to control, and whether control ever spoke on it.

Part of the worker's end of the link (:mod:`gateway.proxy.link`), which owns the connection.  Must not decide what a
message means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.core.link.framing import control_messages
from gateway.core.link.messages import ControlMessage, Refused

_READ_BYTES: Final = 64 * 1024


class Conversation:
    """See the module; one a connection."""

    def __init__(self, on_message: Callable[[ControlMessage], None]) -> None:
        self._on_message = on_message
        self.spoken = False

    async def read(self, reader: asyncio.StreamReader) -> str:
        """Reader task: hands messages on until the connection ends; returns why it did."""
        framer = control_messages()
        while data := await reader.read(_READ_BYTES):
            for message in framer.feed(data):
                if isinstance(message, Refused):
                    return f"control refused this worker: {message.reason}"
                self.spoken = True
                self._on_message(message)
        return "control closed the connection"
