"""Starts of a simulated engine: no two alike, one card for one of them, and every failure ends the process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.endings import await_no_holder, holders, lives
from tests.conformance.targets import SimulatedServer, free_port

Start = Callable[..., SimulatedServer]
SMALL = ("--gpu-memory-utilization", "0.4")


def first_id(server: SimulatedServer) -> str:
    body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 2}).encode()
    url = f"http://127.0.0.1:{server.port}/v1/chat/completions"
    asked = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=20) as answer:
        told: str = json.load(answer)["id"]
    return told


def eventually(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def command(*arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    """The command as a user gives it."""
    code = "from gateway.cli.main import main; main()"
    given = [sys.executable, "-c", code, "simulate-engine", "--preset", "qwen3-8b-h200", *arguments]
    path = {"PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=os.environ | path | environment,
    )


def said(*arguments: str, **environment: str) -> tuple[int, str]:
    """How a command ended that does not go on for long, and what it said."""
    process = command(*arguments, **environment)
    try:
        output, _ = process.communicate(timeout=20)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
    return process.returncode, output.decode()


@pytest.mark.parametrize("seed", [None, 7])
def test_no_two_engines_and_no_two_starts_give_the_same_ids(start: Start, seed: int | None) -> None:
    one = start(*SMALL, seed=seed)
    other = start(*SMALL, seed=seed, card=one.card)
    ids = {first_id(one), first_id(other)}
    assert len(ids) == 2
    other.kill()
    await_alone(one)
    ids.add(first_id(start(*SMALL, seed=seed, card=one.card)))
    assert len(ids) == 3


def await_alone(server: SimulatedServer) -> None:
    eventually(lambda: len(holders(server.card)) == 1)


def test_of_two_starts_at_once_one_gets_the_card_and_the_other_finds_it_full(start: Start, tmp_path: Path) -> None:
    both = [start(card=str(tmp_path / "card"), ready=False) for _ in range(2)]
    eventually(lambda: any(one.exit_code() is not None for one in both))
    loser, winner = sorted(both, key=lambda one: one.exit_code() is None)
    assert loser.exit_code() == 1
    assert "Free memory on device" in loser.log_text()
    winner.await_ready()


def test_a_crash_that_comes_before_there_is_an_engine_core_ends_the_start_with_code_1(start: Start) -> None:
    server = start(load_speed=4.0, ready=False)
    eventually(lambda: reaches_control(server))
    assert server.control("/state")["core_pid"] is None
    server.control("/drift", {"kind": "crash", "magnitude": 1})
    assert server.wait(within_s=30) == 1
    assert "Engine core initialization failed" in server.log_text()


def reaches_control(server: SimulatedServer) -> bool:
    try:
        server.control("/state")
    except OSError:
        return False
    return True


@pytest.mark.parametrize("preset", ["qwen3-8b-h200", "kimi-k2.5-int4"])
def test_sigterm_for_the_whole_group_is_ignored_by_every_process_while_it_loads(start: Start, preset: str) -> None:
    server = start(load_speed=20.0 if preset.startswith("qwen") else 400.0, ready=False, preset=preset)
    eventually(lambda: holders(server.card) and server.control("/state")["core_pid"])
    pids = {holder.pid for holder in holders(server.card)} | {server.control("/state")["core_pid"]}
    os.killpg(server.process.pid, signal.SIGTERM)
    server.await_ready()
    assert all(lives(pid) for pid in pids)
    os.killpg(server.process.pid, signal.SIGTERM)
    assert server.wait(within_s=20) == 0
    await_no_holder(server.card)


@pytest.mark.parametrize(
    "environment",
    [{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"PYTHONIOENCODING": "latin-1"}],
)
def test_a_start_goes_through_whatever_the_encoding_of_the_output(start: Start, environment: dict[str, str]) -> None:
    server = start(environment=environment)
    assert "█" in server.log_bytes().decode()


def test_a_card_of_its_own_goes_with_the_engine_and_one_that_was_given_stays(tmp_path: Path) -> None:
    for extra in ((), ("--card", str(tmp_path / "given"))):
        port = str(free_port())
        process = command("--port", port, "--load-speed", "2000", *extra, TMPDIR=str(tmp_path))
        try:
            assert process.stdout is not None
            while b"startup complete" not in (line := process.stdout.readline()):
                assert line
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)
            if process.stdout is not None:
                process.stdout.close()
    assert [path.name for path in tmp_path.iterdir()] == ["given"]


def test_what_cannot_be_is_said_without_a_traceback(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused(tmp_path, used=str(taken.getsockname()[1]), free=str(free_port()))
    assert {path.name for path in tmp_path.iterdir()} <= {"card", "file"}


def refused(tmp_path: Path, *, used: str, free: str) -> None:
    file = tmp_path / "file"
    file.touch()
    card = ("--card", str(tmp_path / "card"))
    for code, words, arguments in (
        (2, "99999", ("--", "--port", "99999")),
        (2, f"port {used} of 127.0.0.1", ("--port", used, *card)),
        (2, f"control port {used}", ("--port", free, "--control-port", used, *card)),
        (2, "engine's own port", ("--port", free, "--control-port", free)),
        (2, str(file), ("--port", free, "--card", str(file / "card"))),
        (2, "--speed", ("--speed", "1001")),
        (2, "--speed", ("--speed", "nan")),
        (1, "larger than the number of available GPUs (1)", ("--port", free, "--", "-tp", "2")),
        (2, "--max-num-seqs", ("--port", free, "--", "--max-num-seqs", "many")),
    ):
        ended, told = said(*arguments, COLUMNS="200", TMPDIR=str(tmp_path))
        assert ended == code, told
        assert words in told
        assert "Traceback" not in told


@pytest.mark.parametrize("where", ["::1", "uds"])
def test_it_listens_on_an_address_of_the_other_family_and_in_the_file_system(tmp_path: Path, where: str) -> None:
    port, path = free_port(), tmp_path / "socket"
    given = ("--uds", str(path)) if where == "uds" else ("--host", where)
    card = str(tmp_path / "card")
    process = command("--port", str(port), "--load-speed", "2000", "--card", card, "--sigterm", "abort", "--", *given)
    try:
        assert process.stdout is not None
        while b"startup complete" not in (line := process.stdout.readline()):
            assert line
        family = socket.AF_UNIX if where == "uds" else socket.AF_INET6
        with socket.socket(family) as client:
            eventually(lambda: client.connect_ex(str(path) if where == "uds" else (where, port)) == 0)
            client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 200")
        process.terminate()
        assert process.wait(20) == 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
        if process.stdout is not None:
            process.stdout.close()
    assert not path.exists()
