"""The real supervisor over small children: replacing, giving up, stopping.  Real processes, sockets and signals."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from gateway.core.supervision.state import SupervisionPolicy
from tests.fakes.logged_process import await_that, lives
from tests.fakes.supervised import Supervised, supervised


def test_a_killed_worker_is_replaced_and_no_connection_is_refused_meanwhile(tmp_path: Path) -> None:
    with supervised(tmp_path) as gateway:
        gateway.await_ready()
        first = gateway.pid_of("worker 0")
        assert gateway.ask() == f"worker 0 {first}"
        os.kill(first, signal.SIGKILL)
        answers = {gateway.ask() for _ in range(200)}
        gateway.await_event("supervisor.decided", reason="worker 0 is ready")
        assert answers == {f"worker 0 {gateway.pid_of('worker 0')}"}
        assert first != gateway.pid_of("worker 0")


def test_a_killed_control_is_replaced_and_workers_keep_their_streams(tmp_path: Path) -> None:
    with supervised(tmp_path, workers=2) as gateway:
        gateway.await_ready()
        with gateway.hold() as (who, answer):
            os.kill(gateway.pid_of("control"), signal.SIGKILL)
            gateway.await_event("supervisor.decided", reason="control is ready")
            gateway.stop_at_once()
            assert answer.readline() == "cut\n"
        assert gateway.await_exit() == 0
        assert who in {f"worker {slot} {gateway.pid_of(f'worker {slot}')}" for slot in (0, 1)}


def test_a_worker_killed_under_two_streams_ends_its_own_only(tmp_path: Path) -> None:
    with supervised(tmp_path, workers=2) as gateway:
        gateway.await_ready()
        held = {}
        while len(held) < 2:
            stream = gateway.hold()
            who, answer = stream.__enter__()
            held.setdefault(who, (stream, answer))
            if held[who][0] is not stream:
                stream.__exit__(None, None, None)
        victim, survivor = sorted(held)
        os.kill(int(victim.split()[-1]), signal.SIGKILL)
        assert held[victim][1].read() == ""
        gateway.await_event("supervisor.decided", reason=f"{victim.rsplit(' ', 1)[0]} is ready")
        gateway.stop_at_once()
        assert held[survivor][1].readline() == "cut\n"
        for stream, _ in held.values():
            stream.__exit__(None, None, None)


def test_a_crash_loop_ends_with_status_1_and_a_clear_line(tmp_path: Path) -> None:
    policy = SupervisionPolicy(pause_first_s=0.01)
    with supervised(tmp_path, wishes={"worker 0": {"exit": 3}}, policy=policy) as gateway:
        assert gateway.await_exit() == 1
        reasons = [event["reason"] for event in gateway.seen if event["event"] == "supervisor.decided"]
        assert "worker 0 ended 5 times in a row, the last with status 3: giving up" in reasons


def test_a_worker_that_cannot_be_started_at_all_is_a_crash_loop(tmp_path: Path) -> None:
    policy = SupervisionPolicy(pause_first_s=0.01)
    with supervised(tmp_path, worker=("/nowhere/python",), policy=policy) as gateway:
        gateway.await_event("supervisor.spawn_failed", child="worker 0", reason="No such file or directory")
        assert gateway.await_exit() == 1


def test_a_crash_loop_of_one_worker_lets_the_other_finish_its_stream(tmp_path: Path) -> None:
    policy = SupervisionPolicy(pause_first_s=0.01, drain_s=0.1)
    with supervised(tmp_path, workers=2, policy=policy, wishes={"worker 0": {"late_s": 60}}) as gateway:
        gateway.await_event("supervisor.decided", reason="worker 1 accepts for it")
        with gateway.hold() as (_, answer):
            gateway.wish(worker_0={"exit": 3})
            os.kill(gateway.pid_of("worker 0"), signal.SIGKILL)
            assert answer.readline() == "cut\n"
        assert gateway.await_exit() == 1


@pytest.mark.parametrize("child", ["control", "worker 0"])
def test_a_child_that_has_told_the_operator_why_ends_everything_with_status_2(tmp_path: Path, child: str) -> None:
    with supervised(tmp_path, wishes={child: {"exit": 2}}) as gateway:
        assert gateway.await_exit() == 2
        assert [entry for entry in gateway.journal() if entry == f"{child} started"] == [f"{child} started"]


def test_a_silent_child_is_killed_and_replaced(tmp_path: Path) -> None:
    policy = SupervisionPolicy(silent_s=1.0)
    with supervised(tmp_path, wishes={"worker 0": {"mute": True}}, policy=policy) as gateway:
        gateway.await_ready()
        first = gateway.pid_of("worker 0")
        gateway.wish()
        gateway.await_event("supervisor.decided", reason="worker 0 was silent for .* killed")
        gateway.await_event("supervisor.decided", reason="worker 0 is ready")
        assert not lives(first)
        assert gateway.ask() == f"worker 0 {gateway.pid_of('worker 0')}"


def test_a_frozen_child_is_killed_and_replaced(tmp_path: Path) -> None:
    with supervised(tmp_path, policy=SupervisionPolicy(silent_s=1.0)) as gateway:
        gateway.await_ready()
        os.kill(gateway.pid_of("control"), signal.SIGSTOP)
        gateway.await_event("supervisor.decided", reason="control was silent for .* killed")
        gateway.await_event("supervisor.decided", reason="control is ready")


def test_all_end_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    with supervised(tmp_path, workers=2) as gateway:
        gateway.await_ready()
        children = [gateway.pid_of(name) for name in ("control", "worker 0", "worker 1")]
        gateway.signal(signal.SIGKILL)
        await_that(lambda: not any(map(lives, children)), "the children end")
        with pytest.raises(ConnectionRefusedError):
            gateway.ask()


# --- stopping -----------------------------------------------------------------------------------------------------


def refused(gateway: Supervised) -> bool:
    try:
        gateway.ask()
    except ConnectionRefusedError:
        return True
    return False


def test_a_stop_refuses_lets_streams_finish_and_ends_control_last(tmp_path: Path) -> None:
    with supervised(tmp_path, workers=2) as gateway:
        gateway.await_ready()
        with gateway.hold() as (who, answer):
            gateway.signal(signal.SIGTERM)
            gateway.await_event("supervisor.announced", notice="stopping")
            await_that(lambda: refused(gateway), "connections are refused")
            busy, idle = (0, 1) if who.startswith("worker 0") else (1, 0)
            await_that(lambda: f"worker {idle} drained" in gateway.journal(), "the idle worker ends")
            await_that(lambda: f"worker {busy} stop 30" in gateway.journal(), "the busy worker is told as well")
            assert "control stop 3" not in gateway.journal()
        assert answer.closed
        assert gateway.await_exit() == 0
        assert gateway.journal()[-3:] == [f"worker {busy} drained", "control stop 3", "control drained"]


def test_streams_are_cut_at_the_deadline(tmp_path: Path) -> None:
    with supervised(tmp_path, policy=SupervisionPolicy(drain_s=0.2)) as gateway:
        gateway.await_ready()
        with gateway.hold() as (_, answer):
            gateway.signal(signal.SIGTERM)
            assert answer.readline() == "cut\n"
        assert gateway.await_exit() == 0
        assert "worker 0 stop 0.2" in gateway.journal()


def test_a_second_signal_ends_streams_at_once(tmp_path: Path) -> None:
    with supervised(tmp_path) as gateway:
        gateway.await_ready()
        with gateway.hold() as (_, answer):
            gateway.signal(signal.SIGTERM)
            await_that(lambda: "worker 0 stop 30" in gateway.journal(), "the worker is told")
            gateway.signal(signal.SIGINT)
            assert answer.readline() == "cut\n"
        assert gateway.await_exit() == 0


def test_a_worker_that_does_not_obey_is_killed_and_the_status_says_so(tmp_path: Path) -> None:
    policy = SupervisionPolicy(drain_s=0.1, grace_s=0.1)
    with supervised(tmp_path, wishes={"worker 0": {"deaf": True}}, policy=policy) as gateway:
        gateway.await_ready()
        gateway.signal(signal.SIGTERM)
        assert gateway.await_exit() == 1
        assert gateway.journal()[-2:] == ["control stop 3", "control drained"]


def test_connections_that_wait_when_the_stop_comes_are_still_served(tmp_path: Path) -> None:
    with supervised(tmp_path) as gateway:
        gateway.await_ready()
        worker = gateway.pid_of("worker 0")
        os.kill(worker, signal.SIGSTOP)
        clients = [socket.create_connection(gateway.address) for _ in range(5)]
        gateway.signal(signal.SIGTERM)
        gateway.await_event("supervisor.announced", notice="stopping")
        os.kill(worker, signal.SIGCONT)
        for client in clients:
            with client, client.makefile() as answer:
                assert answer.readline() == f"worker 0 {worker}\n"
        assert gateway.await_exit() == 0


def test_a_stop_before_anything_is_ready_ends_too(tmp_path: Path) -> None:
    with supervised(tmp_path, wishes={"worker 0": {"late_s": 60}}) as gateway:
        gateway.await_event("supervisor.decided", reason="control is ready")
        gateway.signal(signal.SIGTERM)
        assert gateway.await_exit() == 0
