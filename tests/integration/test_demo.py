"""The demo as a newcomer starts it: it says where everything is, shows rates, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

COMMAND = (sys.executable, "-c", "from gateway.cli.main import main; main()", "demo")


class Demo:
    """A started demo whose output is read as it comes; the test's own time limit bounds every wait."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"TMPDIR": str(folder)},
            start_new_session=True,
        )
        if self.process.stdout is None:
            raise AssertionError("no pipe")
        self.output: IO[str] = self.process.stdout
        self.text = ""

    def until(self, pattern: str) -> re.Match[str]:
        for line in self.output:
            self.text += line
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"{pattern!r} never came: {self.text}")

    def rest(self) -> int:
        with self.output:
            self.text += self.output.read()
        return self.process.wait(20)


def left_of(folder: Path) -> list[int]:
    """Processes that name the demo's folder in their command line or environment."""
    named, found = str(folder).encode(), []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if named in (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:  # it ended meanwhile, or is somebody else's
            continue
    return found


@pytest.fixture
def folder() -> Iterator[Path]:
    # Not pytest's own: the path of a socket in it has 107 bytes at most.
    with tempfile.TemporaryDirectory(prefix="demo-") as short:
        yield Path(short)
        for pid in left_of(Path(short)):
            os.kill(pid, signal.SIGKILL)


def ask(address: str, body: str) -> str:
    request = urllib.request.Request(
        f"http://{address}/v1/chat/completions", body.encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return str(answer.read(), "utf-8")


def test_it_answers_the_printed_request_shows_rates_and_ends_at_ctrl_c(folder: Path) -> None:
    demo = Demo(folder, "--speed", "4")
    demo.until("SIMULATED: no GPU")
    address = demo.until(r"clients +http://(\S+)/v1")[1]
    token = Path(demo.until(r"token file +(\S+)")[1])
    body = demo.until(r"^curl .* -d '(.*)'$")[1]
    assert token.exists()
    assert json.loads(body)["stream"] is True
    assert "data: [DONE]" in ask(address, body)
    demo.until(r"outcome ok, ttft s [\d.]+, decode tok/s [\d.,]+, reasoning tok/s [\d.,]+, visible tok/s [\d.,]+, ")
    assert len(left_of(folder)) >= 5
    demo.process.send_signal(signal.SIGINT)
    assert demo.rest() == 0, demo.text
    assert left_of(folder) == []
    assert list(folder.iterdir()) == []


def test_sigterm_while_the_engines_load_ends_it_with_code_0(folder: Path) -> None:
    demo = Demo(folder)
    demo.until("starting two SIMULATED engines")
    demo.process.send_signal(signal.SIGTERM)
    assert demo.rest() == 0, demo.text
    assert left_of(folder) == []
    assert list(folder.iterdir()) == []


def test_it_ends_by_itself_and_can_be_without_traffic(folder: Path) -> None:
    demo = Demo(folder, "--seconds", "3", "--quiet-traffic")
    assert demo.rest() == 0, demo.text
    assert "serving" in demo.text
    assert "waits for your request" in demo.text
    assert "outcome" not in demo.text
    assert left_of(folder) == []


def test_a_speed_that_shows_only_this_machine_is_wrong_usage(folder: Path) -> None:
    fast = Demo(folder, "--speed", "1000")
    assert fast.rest() == 2
    assert "0.001 to 50" in fast.text
    assert list(folder.iterdir()) == []


def test_a_preset_that_is_not_there_is_wrong_usage_and_the_others_are_named(folder: Path) -> None:
    unknown = Demo(folder, "--preset", "none")
    assert unknown.rest() == 2
    assert "kimi-k2.5-int4" in unknown.text
    assert list(folder.iterdir()) == []


def test_when_the_demo_is_killed_its_children_end_and_its_folder_goes(folder: Path) -> None:
    demo = Demo(folder, "--no-traffic")
    demo.until(r"clients +http://")
    assert len(left_of(folder)) >= 5
    demo.process.kill()
    demo.output.close()
    demo.process.wait(20)
    end_s = time.monotonic() + 10
    while (left_of(folder) or any(folder.iterdir())) and time.monotonic() < end_s:
        time.sleep(0.1)
    assert left_of(folder) == []
    assert list(folder.iterdir()) == []
