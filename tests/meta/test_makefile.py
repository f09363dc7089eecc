"""What the Makefile's targets do beyond calling one command."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.meta.source_tree import ROOT

FAKE_PYTHON = """\
#!/bin/sh
echo "$*" >> "$(dirname "$0")/calls"
test "$*" != "-m benchmarks prepare"
"""


def test_the_benchmark_runs_although_a_peer_cannot_be_installed(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text(FAKE_PYTHON)
    python.chmod(0o755)
    (tmp_path / ".installed").touch()
    environ = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL"}}
    made = subprocess.run(
        ["make", "bench", f"VENV={tmp_path}"], cwd=ROOT, env=environ, check=False, capture_output=True, timeout=30
    )
    assert (tmp_path / "bin" / "calls").read_text().splitlines() == ["-m benchmarks prepare", "-m benchmarks"]
    assert made.returncode == 0, made.stderr.decode()
