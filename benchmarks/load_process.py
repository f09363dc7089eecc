"""One of several processes of load: keeps its connections busy and counts on a board that the harness reads.

Run by `workers.py`: `python -m benchmarks.load_process --port N --kind streams --connections C --board FILE --row R`.
The board is a file in shared memory, a row of whole numbers for each process, so that the harness can look at all
counts in the moment in which it looks at the CPU. Ends when it is ended.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import mmap
import os
import struct
from collections.abc import Callable
from pathlib import Path

import uvloop

from benchmarks.load import AnswerClient, ChatRequest, Client, StreamClient, Tally, chat_request, connect

ROW = struct.Struct("4q")
"""Events, answers, failures, open connections."""

_TELL_S = 0.005
_RAMP_S = 0.5


class Board:
    """The counts of all processes of load; made by the harness, each process writes its own row."""

    def __init__(self, path: Path, rows: int) -> None:
        path.touch()
        os.truncate(path, ROW.size * rows)
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), ROW.size * rows)
        self._rows = rows

    def write(self, row: int, tally: Tally, *, connections: int) -> None:
        """Tell what was done so far."""
        ROW.pack_into(self._memory, row * ROW.size, tally.events, tally.answers, len(tally.failures), connections)

    def total(self) -> tuple[int, int, int, int]:
        """The sums of the columns over all rows."""
        rows = [ROW.unpack_from(self._memory, row * ROW.size) for row in range(self._rows)]
        events, answers, failures, connections = (sum(column) for column in zip(*rows, strict=True))
        return events, answers, failures, connections


def _again(client: Client, request: ChatRequest) -> Callable[[], None]:
    """Begin a request on the connection, and the next one whenever one ends."""
    loop = asyncio.get_running_loop()

    def begin() -> None:
        client.send(request, ended)

    def ended() -> None:
        # Not at once: a connection that was lost would fail in a circle.
        loop.call_soon(begin)

    return begin


async def _load(arguments: argparse.Namespace) -> None:
    tally = Tally(timing=False)
    board = Board(arguments.board, arguments.rows)
    streams = arguments.kind == "streams"
    request = chat_request(tokens=arguments.tokens, stream=streams, pace_ms=arguments.pace_ms)
    kind: Callable[[Tally], Client] = StreamClient if streams else AnswerClient
    clients = await connect(kind, arguments.port, count=arguments.connections, tally=tally)
    gc.freeze()
    gc.disable()
    for number, client in enumerate(clients):
        asyncio.get_running_loop().call_later(_RAMP_S * number / len(clients), _again(client, request))
    while len(tally.failures) < 10 * arguments.connections:
        board.write(arguments.row, tally, connections=len(clients))
        await asyncio.sleep(_TELL_S)


def main() -> None:
    """Load until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--kind", choices=("streams", "requests"), required=True)
    parser.add_argument("--connections", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--pace-ms", type=float, default=10.0)
    parser.add_argument("--board", type=Path, required=True)
    parser.add_argument("--row", type=int, required=True)
    parser.add_argument("--rows", type=int, required=True)
    uvloop.run(_load(parser.parse_args()))


if __name__ == "__main__":
    main()
