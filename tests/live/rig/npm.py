"""The node and the script that drive the npm client; `run.sh` installs both."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "tests/live/npm/client.mjs"


def node() -> str:
    """The node that `run.sh` installed, else the machine's own."""
    installed = ROOT / ".live/node/bin/node"
    return str(installed) if installed.exists() else shutil.which("node") or "node"


def play(base_url: str, scene: str, *more: str, key: str = "unused") -> Any:
    """Run one scene of the script to its end; its result."""
    done = subprocess.run(
        [node(), str(SCRIPT), base_url, scene, *more],
        capture_output=True,
        check=False,
        env={**os.environ, "LIVE_CLIENT_KEY": key},
        timeout=60,
        text=True,
    )
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)
