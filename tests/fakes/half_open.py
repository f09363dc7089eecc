"""Connections whose other side is gone without a word: real half-open TCP on loopback, without any privilege.

A filter on a socket drops every packet that it would get: it hears nothing, acknowledges nothing and answers nothing,
like a machine that lost its power or a translator that forgot the flow.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

SO_ATTACH_FILTER: Final = 26
_DROP_ALL: Final = struct.pack("HBBI", 0x06, 0, 0, 0)  # classic BPF: return 0, nothing of the packet is kept


def vanish(connected: Any) -> None:
    """From now on nothing reaches ``connected``, a socket or what a transport gives for one, and it says nothing."""
    code = ctypes.create_string_buffer(_DROP_ALL)
    connected.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(code)))


@contextmanager
def mute_listener() -> Iterator[int]:
    """A port on which connects are neither taken nor refused: its backlog is full and nobody accepts."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        port: int = listening.getsockname()[1]
        waiting = []
        for _ in range(4):  # what fits into the backlog, and some that wait as others will
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
            waiting.append(one)
        try:
            yield port
        finally:
            for one in waiting:
                one.close()
