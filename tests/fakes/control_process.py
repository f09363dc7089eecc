"""The control process without a supervisor: ``python -m tests.fakes.control_process SPEC PORT``.

Binds the operators' port itself and serves until it is killed; prints "ready" once it works.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

from gateway.app.control import ControlShell
from gateway.app.spec import read_spec


async def _run(spec: Path, port: int) -> int:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    shell = ControlShell(read_spec(spec), [listener])
    shell.ready = lambda: print("ready", flush=True)  # noqa: T201 - what the test waits for
    return await shell.run()


if __name__ == "__main__":
    sys.exit(asyncio.run(_run(Path(sys.argv[1]), int(sys.argv[2]))))
