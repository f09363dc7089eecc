"""After a run: is any process left that the live tests started? Ends it and says so.

    python -m tests.live.rig.leftover FOLDER

FOLDER is the run's own, with the ledger of what was started. Exit code 1 when anything was left.
"""

import signal
import sys
from pathlib import Path

from tests.live.rig.processes import kill, members


def left(folder: Path) -> dict[str, list[int]]:
    """What the ledger of a run says was started and still lives: log name to process ids."""
    ledger = folder / "ledger.txt"
    rows = ledger.read_text().splitlines() if ledger.exists() else []
    started = [row.split(" ", 2) for row in rows]
    return {name: pids for mark, group, name in started if (pids := members(mark, int(group)))}


def main(folder: Path) -> int:
    """Look, end, report."""
    still = left(folder)
    for name, pids in still.items():
        sys.stdout.write(f"left running by the live tests: {name}: {pids}; ending them\n")
        kill(pids, signal.SIGKILL)
    return 1 if still else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
