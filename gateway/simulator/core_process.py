"""What is left of a real EngineCore process: a process that holds GPU memory and outlives its parent.

Started as a script, with nothing of the package (it must start in a few milliseconds): ``core_process.py CARD GPUS
BYTES``.  It holds BYTES on each of GPUS by a file with its pid in the folder CARD, until it is killed; files of pids
that are gone hold nothing.  It does not look after its parent: that is the point.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys

_SET_NAME = 15  # prctl's PR_SET_NAME


def main() -> None:
    """Hold memory until the end."""
    card, gpus, held_bytes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    ctypes.CDLL(None).prctl(_SET_NAME, b"VLLM::EngineCore", 0, 0, 0)
    pid = os.getpid()
    os.makedirs(card, exist_ok=True)  # noqa: PTH103 - pathlib costs a third of the start
    path = os.path.join(card, str(pid))  # noqa: PTH118
    with open(f"{path}.new", "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump({"pid": pid, "gpus": gpus, "bytes": held_bytes}, file)
    os.replace(f"{path}.new", path)  # noqa: PTH105
    os.write(sys.stdout.fileno(), b"held\n")
    # Ctrl-C at a terminal reaches the whole group; the API process decides what becomes of this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
