"""What is left of a real EngineCore and its Workers: processes that hold GPU memory and outlive their parent.

Started as a script, with nothing of the package (it must start in a few milliseconds): ``core_process.py CARD GPUS
BYTES``.  One GPU is held by EngineCore itself, several by a Worker each, as real ones do; who holds has a file with its
pid in the folder CARD, until it is killed.  EngineCore does not look after its parent: that is the point.  A Worker
ends some seconds after EngineCore's death, and EngineCore soon after a Worker's.  All of them ignore SIGTERM until
SIGUSR2 tells that the server serves; SIGUSR1 always ends them.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType

_SET_NAME = 15  # prctl's PR_SET_NAME
# Recorded: a Worker ended 3.1 s after EngineCore was killed, EngineCore 0.4 s after a Worker was.
_WORKER_LINGERS_S = 3.0
_CORE_NOTICES_S = 0.4


def main() -> None:
    """Hold memory until the end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGUSR2, lambda *_: heed(signal.SIG_DFL))
    card, count, held_bytes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    os.makedirs(card, exist_ok=True)  # noqa: PTH103 - pathlib costs a third of the start
    call_myself("VLLM::EngineCore")
    # Ctrl-C at a terminal reaches the whole group; the API process decides what becomes of this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if count == 1:
        hold(card, 0, held_bytes, name="VLLM::EngineCore")
        os.write(sys.stdout.fileno(), b"held\n")
        while True:
            signal.pause()
    watch(card, count, held_bytes)


def heed(act: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    """Let SIGTERM do that from now on."""
    signal.signal(signal.SIGTERM, act)


def watch(card: str, count: int, held_bytes: int) -> None:
    """Start a Worker for each GPU and live with them: SIGUSR1 ends all, and so does the death of one."""
    alive_read, alive_write = os.pipe()
    held_read, held_write = os.pipe()
    workers = []
    for rank in range(count):
        pid = os.fork()
        if pid == 0:
            os.close(alive_write)
            os.close(held_read)
            work(card, rank, held_bytes, alive=alive_read, held=held_write)
        workers.append(pid)
    os.close(alive_read)
    os.close(held_write)

    def end(_number: int, _frame: object) -> None:
        for pid in workers:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)  # the memory is free when this process is gone
            except OSError:
                continue  # it was gone already
        os._exit(0)

    def serve(_number: int, _frame: object) -> None:
        heed(end)
        for pid in workers:
            os.kill(pid, signal.SIGUSR2)

    signal.signal(signal.SIGUSR1, end)
    signal.signal(signal.SIGUSR2, serve)
    for _ in workers:
        os.read(held_read, 1)
    os.write(sys.stdout.fileno(), b"held\n")
    dead, _ = os.wait()
    workers.remove(dead)
    time.sleep(_CORE_NOTICES_S)
    end(0, None)


def work(card: str, rank: int, held_bytes: int, *, alive: int, held: int) -> None:
    """Hold one GPU's memory until EngineCore is gone for a while."""
    call_myself(f"VLLM::Worker_TP{rank}")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    hold(card, rank, held_bytes, name=f"VLLM::Worker_TP{rank}")
    os.write(held, b".")
    os.read(alive, 1)  # nobody writes: it returns when the last one that could is dead
    time.sleep(_WORKER_LINGERS_S)
    os._exit(0)


def call_myself(name: str) -> None:
    """Set the name that process lists show; the kernel keeps 15 characters of it."""
    ctypes.CDLL(None).prctl(_SET_NAME, name.encode(), 0, 0, 0)


def hold(card: str, gpu: int, held_bytes: int, *, name: str) -> None:
    """Have this process hold so much of one GPU."""
    pid = os.getpid()
    path = os.path.join(card, str(pid))  # noqa: PTH118
    with open(f"{path}.new", "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump({"pid": pid, "name": name, "gpus": [gpu], "bytes": held_bytes}, file)
    os.replace(f"{path}.new", path)  # noqa: PTH105


if __name__ == "__main__":
    main()
