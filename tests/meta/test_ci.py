"""The script that checks everything: its limits add up, and it passes over nothing without a word."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.meta.source_tree import ROOT

SCRIPT = ROOT / ".ci" / "run"
WHOLE_S = 45 * 60
INSTALLING_S = 20
"""For Debian packages on a machine that lacks them; everything else counts into its tier."""

FAKE_MAKE = """\
#!/bin/sh
echo "$*" >> "{calls}"
case "$*" in
    "--question test-faults") exit {faults};;
    --question*) exit 1;;
esac
"""


def limits_s(text: str) -> list[int]:
    tiers = re.findall(r"^(?:tier|tier_to_come) \S+ (\d+)$", text, re.MULTILINE)
    return [int(limit) for limit in tiers]


def run(folder: Path, *, has_faults: bool) -> tuple[str, list[str]]:
    """What the script says and which targets it makes, with a `make` that does nothing."""
    calls = folder / "calls"
    fakes = dict.fromkeys(("git", "curl"), "#!/bin/sh\n")  # so that the script has nothing to install
    for name, text in (fakes | {"make": FAKE_MAKE.format(calls=calls, faults=1 if has_faults else 2)}).items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    environ = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", SCRIPT], env=environ, check=True, capture_output=True, text=True, timeout=30)
    return done.stdout, [call for call in calls.read_text().splitlines() if not call.startswith("--")]


def test_the_limits_of_all_tiers_stay_within_the_whole() -> None:
    text = SCRIPT.read_text()
    limits = limits_s(text)
    kill_after = int(re.findall(r"--kill-after=(\d+)", text)[0])
    assert len(limits) == 4
    assert sum(limits) + kill_after + INSTALLING_S < WHOLE_S  # only the last tier of a run can have to be killed


def test_every_tier_is_made_in_order(tmp_path: Path) -> None:
    said, made = run(tmp_path, has_faults=True)
    assert made == ["test", "test-faults", "docker-check", "test-live"]
    assert "NOT RUN" not in said


def test_a_tier_without_a_target_is_told(tmp_path: Path) -> None:
    said, made = run(tmp_path, has_faults=False)
    assert made == ["test", "docker-check", "test-live"]
    assert "make test-faults: NOT RUN" in said
