"""The command `pacekeeper` as people start it: exit codes, pipes and a real terminal of 100 columns."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fakes.admin_server import TOKEN, FakeGateway, serving

COMMAND = str(Path(sys.executable).with_name("pacekeeper"))
PASSED_ON = {"PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG"}


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with serving(FakeGateway(time.time()), socket_path=tmp_path / "s") as url:
        yield url


def environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name in PASSED_ON} | {"LC_ALL": "C.UTF-8"} | more


def run(*arguments: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *arguments],
        cwd=cwd,
        env=environment(**environ),
        capture_output=True,
        text=True,
        timeout=45,
        check=False,
    )


def on_terminal(*arguments: str, columns: int, **environ: str) -> str:
    """What the command writes on a terminal of ``columns``, line ends as in a file."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [COMMAND, *arguments],
        env=environment(COLUMNS=str(columns), TERM="xterm-256color", **environ),
        stdin=child,
        stdout=child,
        stderr=child,
    )
    os.close(child)
    output = b""
    with suppress(OSError):  # Linux says EIO when the other side has closed
        while piece := os.read(parent, 65_536):
            output += piece
    os.close(parent)
    assert process.wait(timeout=45) == 0
    return output.decode().replace("\r\n", "\n")


@pytest.mark.parametrize(
    "arguments, code",
    [
        (("version",), 0),
        (("nonsense",), 2),
        (("check", "gone.yaml"), 2),
        (("serve", "--config", "gone.yaml"), 2),
        (("status", "--operators", "unix:gone"), 3),
    ],
)
def test_the_exit_code_is_what_the_help_says(arguments: tuple[str, ...], code: int, tmp_path: Path) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == code
    assert bool(done.stdout) is (code == 0)
    assert bool(done.stderr) is (code != 0)
    assert "Traceback" not in done.stderr


def test_a_pipe_gets_neither_colours_nor_frames(url: str, tmp_path: Path) -> None:
    for arguments in (
        ("status",),
        ("backends", "list"),
        ("requests", "list"),
        ("requests", "show", "client"),
        ("--help",),
    ):
        done = run(*arguments, cwd=tmp_path, PACEKEEPER_OPERATORS_URL=url, PACEKEEPER_TOKEN=TOKEN)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        assert not set(done.stdout) & set("\x1b│╭╮╰╯━░▒▓█")


def test_an_old_locale_is_no_fault(url: str, tmp_path: Path) -> None:
    environ = {"PACEKEEPER_OPERATORS_URL": url, "PACEKEEPER_TOKEN": TOKEN, "PYTHONIOENCODING": "ascii"}
    done = run("requests", "list", cwd=tmp_path, **environ)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_leaves_is_no_fault(url: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [COMMAND, "requests", "list", "--json"],
        env=environment(PACEKEEPER_OPERATORS_URL=url, PACEKEEPER_TOKEN=TOKEN),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    if process.stdout is None or process.stderr is None:
        pytest.fail("no pipes")
    process.stdout.close()
    with process.stderr as errors:
        assert b"Traceback" not in errors.read()
    process.wait(timeout=45)


@pytest.mark.parametrize("command", ["status", "backends list", "requests list", "requests show 3f2a9c01b2d400000007"])
def test_a_terminal_of_100_columns_gets_colours_and_no_line_that_wraps(command: str, url: str) -> None:
    shown = on_terminal(*command.split(), columns=100, PACEKEEPER_OPERATORS_URL=url, PACEKEEPER_TOKEN=TOKEN)
    assert "\x1b[" in shown
    plain = shown
    for sequence in {piece.split("m")[0] for piece in shown.split("\x1b[")[1:]}:
        plain = plain.replace(f"\x1b[{sequence}m", "")
    assert max(len(line) for line in plain.splitlines()) <= 100
