"""A child process as it is: signals that mean nothing to it, exit codes, and its end when the supervisor is gone."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.app.child import YOUNG_OBJECTS
from gateway.app.spec import InstallSpec, write_spec
from gateway.core.tether import Adopt, Stop, line
from tests.fakes.supervised import ROOT

PATIENCE_S = 20.0


class Child:
    def __init__(self, process: subprocess.Popen[str], tether: socket.socket) -> None:
        self.process = process
        self.tether = tether
        self.heard = tether.makefile("r")

    def await_word(self, word: str) -> None:
        while (text := self.heard.readline()) != f"{word}\n":
            if not text:
                raise AssertionError(f"never said {word}: {self.process.communicate()}")

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out, err


@contextmanager
def living(behaviour: str, folder: Path) -> Iterator[Child]:
    spec = write_spec(
        InstallSpec(
            config_path="/etc/pk.yaml",
            runtime_dir=str(folder / "run"),
            store_path=str(folder / "pk.db"),
            workers=1,
            clients=(),
            operators=(),
        )
    )
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE_S)
    with ours:
        with theirs:
            fds = json.dumps({"slots": [[]], "operators": [], "tether": theirs.fileno()})
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.fakes.living_child", behaviour, "--spec", str(spec), "--fds", fds],
                pass_fds=[theirs.fileno()],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=ROOT,
            )
        child = Child(process, ours)
        try:
            with child.heard:
                yield child
        finally:
            process.kill()
            process.communicate()


def test_a_stop_is_passed_on_and_the_shells_status_is_the_processs(tmp_path: Path) -> None:
    with living("obedient", tmp_path) as child:
        child.await_word("ready")
        child.tether.send(line(Stop(12.5)))
        child.await_word("drained")
        assert child.end() == (7, "stop 12.5\n", "")


def test_signals_of_terminals_and_operators_do_nothing(tmp_path: Path) -> None:
    with living("obedient", tmp_path) as child:
        child.await_word("ready")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            child.process.send_signal(number)
            child.await_word("beat")
        child.tether.send(line(Stop(0.0)))
        assert child.end() == (7, "stop 0\n", "")


def test_what_a_child_starts_does_not_ignore_those_signals(tmp_path: Path) -> None:
    with living("parent", tmp_path) as child:
        child.await_word("ready")
        child.tether.send(line(Stop(0.0)))
        _, told, _ = child.end()
        ignored = int(told.split()[1], 16)
        assert [number for number in (1, 2, 15) if ignored >> (number - 1) & 1] == []


@pytest.mark.parametrize("how", ["closed", "killed with bytes unread"])
def test_a_child_whose_supervisor_is_gone_stops_by_itself(tmp_path: Path, how: str) -> None:
    with living("obedient", tmp_path) as child:
        child.await_word("ready")
        if how == "closed":
            child.tether.shutdown(socket.SHUT_RDWR)
        child.heard.close()
        child.tether.close()
        assert child.end() == (7, "stop 0.25\n", "")


@pytest.mark.parametrize("behaviour", ["stuck", "disobedient"])
def test_a_child_that_does_not_get_there_by_itself_is_ended_too(tmp_path: Path, behaviour: str) -> None:
    with living(behaviour, tmp_path) as child:
        child.await_word("ready")
        child.heard.close()
        child.tether.close()
        code, _, _ = child.end()
        assert code == 1


def test_a_fault_of_the_operator_is_one_line_and_status_2(tmp_path: Path) -> None:
    with living("operator", tmp_path) as child:
        assert child.end() == (2, "", "pacekeeper: /var/lib/x.db: cannot be written\n")


def test_a_defect_is_told_without_its_message_and_is_status_1(tmp_path: Path) -> None:
    with living("defect", tmp_path) as child:
        code, _, told = child.end()
        assert code == 1
        assert told.startswith("pacekeeper: worker 0 ends by a defect: RuntimeError at ")
        assert "living_child.py" in told
        assert "prompt" not in told


def test_a_child_that_is_ready_has_its_start_out_of_the_collectors_sight(tmp_path: Path) -> None:
    with living("settled", tmp_path) as child:
        child.await_word("ready")
        child.tether.send(line(Stop(0.0)))
        assert child.end()[1].splitlines()[0] == f"True {YOUNG_OBJECTS}"


def test_an_error_that_nobody_awaits_is_an_event_without_the_words_of_anybody(tmp_path: Path) -> None:
    with living("careless", tmp_path) as child:
        child.await_word("ready")
        child.tether.send(line(Stop(0.0)))
        _, _, told = child.end()
    events = [json.loads(text) for text in told.splitlines()]
    assert [(it["event"], it["what"], it["error"]) for it in events] == [
        ("callback.failed", "Exception in callback", "ValueError"),
        ("callback.failed", "Task exception was never retrieved", "ValueError"),
    ]
    assert all("living_child.py" in it["place"] for it in events)
    assert "prompt" not in told


def test_an_order_that_cannot_be_carried_out_makes_the_child_fall_silent(tmp_path: Path) -> None:
    with living("obedient", tmp_path) as child:
        child.await_word("ready")
        child.tether.send(line(Adopt(0)))
        child.tether.settimeout(2.5)
        with pytest.raises((TimeoutError, OSError)):
            child.await_word("nothing like this")
