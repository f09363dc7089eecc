"""After a run: is any process left that the live tests started? Ends it and says so.

    python -m tests.live.rig.leftover FOLDER

FOLDER is the run's own, with the ledger of the sessions that were started. Exit code 1 when anything was left.
"""

import signal
import sys
from pathlib import Path

from tests.live.rig.processes import kill, members


def started(folder: Path) -> dict[int, str]:
    """The sessions of a run and what each was, from its ledger."""
    ledger = folder / "ledger.txt"
    if not ledger.exists():
        return {}
    rows = (line.split(" ", 1) for line in ledger.read_text().splitlines())
    return {int(session): name for session, name in rows}


def main(folder: Path) -> int:
    """Look, end, report."""
    left = {name: pids for session, name in started(folder).items() if (pids := members(session))}
    for name, pids in left.items():
        sys.stdout.write(f"left running by the live tests: {name}: {pids}; ending them\n")
        kill(pids, signal.SIGKILL)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
