"""The demo at a terminal: nothing scrolls away, Ctrl-C ends it well at any moment, and make says so too."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.test_demo import folder, left_of
from tests.meta.source_tree import ROOT

__all__ = ["folder"]

DEMO = (sys.executable, "-c", "from gateway.cli.entry import main; main()", "demo")
AT_TERMINAL = """
import fcntl, os, pty, struct, sys, termios
def read(master):
    return os.read(master, 4096)
columns, rows = int(sys.argv[1]), int(sys.argv[2])
size = struct.pack("HHHH", rows, columns, 0, 0)
sized = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSWINSZ, bytes.fromhex(sys.argv[1]));"
status = pty.spawn([sys.executable, "-c", sized + "os.execvp(sys.argv[2], sys.argv[2:])", size.hex(), *sys.argv[3:]], read)
sys.exit(os.waitstatus_to_exitcode(status))
"""
CTRL_C = b"\x03"


def at_terminal(folder: Path, *command: str, columns: int = 80, rows: int = 24) -> subprocess.Popen[bytes]:
    dropped = {"MAKEFLAGS", "MAKELEVEL", "NO_COLOR", "COLUMNS", "LINES"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return subprocess.Popen(
        [sys.executable, "-c", AT_TERMINAL, str(columns), str(rows), *command],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=kept | {"TMPDIR": str(folder), "PYTHONPATH": str(ROOT), "TERM": "xterm"},
    )


def until(process: subprocess.Popen[bytes], wanted: bytes) -> bytes:
    """What was read until ``wanted`` came; the test's own time limit bounds the wait."""
    if process.stdout is None:
        raise AssertionError("no pipe")
    text = b""
    while wanted not in text:
        more = os.read(process.stdout.fileno(), 4096)
        assert more, text.decode()
        text += more
    return text


@pytest.mark.parametrize("moment", [b"starting two SIMULATED", b"LAST SECOND"])
def test_ctrl_c_through_make_is_no_failure(folder: Path, moment: bytes) -> None:
    venv = f"VENV={sys.prefix}"
    make = at_terminal(folder, "make", "-o", f"{sys.prefix}/.installed", venv, "demo")
    until(make, moment)
    rest, _ = make.communicate(CTRL_C, timeout=40)
    assert make.returncode == 0, rest.decode()
    assert b"ended: no process and no file is left" in rest
    assert b"Error" not in rest
    assert left_of(folder) == []
    assert list(folder.iterdir()) == []


def test_ctrl_c_while_the_command_line_is_loaded_ends_it_with_code_0(folder: Path) -> None:
    demo = subprocess.Popen(
        DEMO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=os.environ | {"TMPDIR": str(folder)}
    )
    status = Path(f"/proc/{demo.pid}/status")
    while not int(re.findall(r"SigBlk:\s+(\w+)", status.read_text())[0], 16) & 1 << (signal.SIGINT - 1):
        time.sleep(0.001)
    demo.send_signal(signal.SIGINT)
    said, _ = demo.communicate(timeout=40)
    assert demo.returncode == 0, said.decode()
    assert b"Traceback" not in said
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("columns, rows", [(80, 24), (120, 40), (50, 24)])
def test_a_frame_is_lower_than_the_terminal_and_begins_with_what_to_copy(folder: Path, columns: int, rows: int) -> None:
    demo = at_terminal(folder, *DEMO, "--seconds", "3", columns=columns, rows=rows)
    said, _ = demo.communicate(timeout=50)
    assert demo.returncode == 0, said.decode()
    frames = re.findall(r"\x1b\[H(\x1b\[2K.*?)\x1b\[J", said.decode(), re.DOTALL)
    assert frames  # a busy machine may not come to a second one
    for drawn in frames:
        lines = re.sub(r"\x1b\[[0-9;]*[mK]", "", drawn).splitlines()
        assert "SIMULATED" in lines[0]
        assert any("requests list --config" in line for line in lines)
        assert sum(max(1, -(-len(line) // columns)) for line in lines) < rows
