"""A child's command line and listeners; the process itself is tested in integration."""

from __future__ import annotations

import json
import os
import socket
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from gateway.app.child import given
from gateway.app.spec import InstallSpec, write_spec


@pytest.fixture
def spec_path(tmp_path: Path) -> Path:
    return write_spec(
        InstallSpec(
            config_path="/etc/pk.yaml",
            runtime_dir=str(tmp_path / "run"),
            store_path=str(tmp_path / "pk.db"),
            workers=2,
            clients=(),
            operators=(),
        )
    )


def command_line(spec_path: Path, *, slot: int | None = None, **fds) -> list[str]:
    handed = {"slots": [], "operators": [], "tether": 9} | fds
    return ["--spec", str(spec_path), *([] if slot is None else ["--slot", str(slot)]), "--fds", json.dumps(handed)]


def test_who_a_child_is_stands_in_its_command_line(spec_path: Path) -> None:
    assert given(command_line(spec_path, slot=1, slots=[[5], [6]])).name == "worker 1"
    assert given(command_line(spec_path, operators=[5])).name == "control"


def test_a_worker_gets_every_slots_listeners_but_a_shared_one_only_as_its_own(spec_path: Path) -> None:
    with ExitStack() as held:
        fds = [held.enter_context(socket.create_server(("127.0.0.1", 0))).detach() for _ in range(3)]
        first, second, shared = fds
        who = given(command_line(spec_path, slot=1, slots=[[first, shared], [second, shared]]))
        for fd in fds:
            os.set_inheritable(fd, True)
        listeners = who.slot_listeners()
        assert {slot: [sock.fileno() for sock in socks] for slot, socks in listeners.items()} == {
            0: [first],
            1: [second, shared],
        }
        assert not any(os.get_inheritable(fd) for fd in fds)  # what a child starts gets none of them
        for sock in (*listeners[0], *listeners[1]):
            held.enter_context(sock)


def test_control_gets_the_operators_listeners(spec_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        (listener,) = given(command_line(spec_path, operators=[server.fileno()])).operator_listeners()
        assert listener.getsockname() == server.getsockname()
        listener.detach()


def test_descriptors_that_are_none_are_refused(spec_path: Path) -> None:
    with pytest.raises(msgspec.ValidationError):
        given(["--spec", str(spec_path), "--fds", '{"slots": 1}'])


def test_a_humans_attempt_is_told_what_this_is(capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        given(["--help"])
    assert ended.value.code == 0
    assert "started by its supervisor only" in capsys.readouterr().out
