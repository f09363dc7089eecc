"""What was found about the ends of a server and of a client, one finding a check: recorded, and watched here.

Every simulated server of this file is struck, so each check starts its own; a real one is struck by the live tier.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from tests.conformance import endings
from tests.conformance.endings import Ending
from tests.conformance.targets import VARIANTS, SimulatedServer, Target, exchange, raw_request
from tests.fakes.recordings import RecordedEnd

Start = Callable[..., SimulatedServer]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start simulated servers; all of them are ended."""
    started: list[SimulatedServer] = []

    def begin(
        *arguments: str, speed: float = 1.0, load_speed: float = 2000.0, sigterm: str = "abort"
    ) -> SimulatedServer:
        server = SimulatedServer(*VARIANTS["base"], *arguments, speed=speed, load_speed=load_speed, sigterm=sigterm)
        started.append(server)
        return server

    yield begin
    for server in started:
        server.kill()


@pytest.fixture
def ready(start: Start) -> Start:
    """Start a simulated server and wait until it serves."""

    def begin(*arguments: str, speed: float = 1.0, sigterm: str = "abort") -> SimulatedServer:
        server = start(*arguments, speed=speed, sigterm=sigterm)
        server.await_ready()
        return server

    return begin


def check_aborted(ending: Ending) -> None:
    assert ending.stream.end is RecordedEnd.COMPLETE
    assert ending.stream.last.endswith("data: [DONE]\n\n\r\n0\r\n\r\n")
    assert '"completion_tokens_details"' in ending.stream.last
    assert ending.nonstream.end is RecordedEnd.COMPLETE
    assert ending.exit_code == 0
    assert ending.refused_s is not None
    assert ending.core_gone_s is not None
    assert ending.left == []


@pytest.mark.parametrize("name", ["sigterm-run2", "sigterm-run4"])
def test_sigterm_aborts_recorded(name: str) -> None:
    check_aborted(endings.recorded(name))


@pytest.mark.parametrize("which", ["stream", "nonstream"])
@pytest.mark.parametrize("run", ["sigterm-run2", "sigterm-run4"])
def test_what_sigterm_aborts_has_the_finish_reason_abort_recorded(run: str, which: str, recorded: Target) -> None:
    assert b'"finish_reason":"abort"' in recorded.exchange(f"{run}-{which}").raw


def test_sigterm_aborts_simulated(ready: Start) -> None:
    ending = endings.watched(ready(), "term")
    check_aborted(ending)
    assert '"finish_reason":"abort"' in ending.stream.last
    assert '"finish_reason":"abort"' in ending.nonstream.last


def check_hangs(ending: Ending) -> None:
    assert ending.stream.end is RecordedEnd.SILENCE
    assert ending.nonstream.end is RecordedEnd.SILENCE
    assert ending.core_gone_s is not None
    assert ending.refused_s is not None
    assert ending.exit_code is None
    assert len(ending.left) == 1


@pytest.mark.parametrize("name", ["sigterm", "sigterm-run5"])
def test_sigterm_hangs_recorded(name: str) -> None:
    check_hangs(endings.recorded(name))


def test_sigterm_hangs_simulated_until_the_clients_leave(ready: Start) -> None:
    server = ready(sigterm="hang")
    check_hangs(endings.watched(server, "term"))
    assert server.process.wait(10) == 0  # the clients of the watch have given up


def check_drained(ending: Ending) -> None:
    assert ending.stream.end is RecordedEnd.COMPLETE
    assert '"finish_reason":"abort"' not in ending.stream.last
    assert '"completion_tokens":1900' in ending.stream.last
    assert ending.nonstream.end is RecordedEnd.COMPLETE
    assert set(ending.health) == {"200"}
    assert ending.exit_code == 0
    assert ending.left == []
    assert ending.exit_s is not None
    assert ending.exit_s > ending.stream.after_s


@pytest.mark.parametrize("name", ["drain", "drain-new"])
def test_sigterm_with_a_timeout_drains_recorded(name: str) -> None:
    check_drained(endings.recorded(name))


def test_sigterm_with_a_timeout_drains_simulated(ready: Start) -> None:
    check_drained(endings.watched(ready("--shutdown-timeout", "20", speed=8.0), "term", watch_s=15))


def test_a_draining_server_refuses_new_requests_with_the_recorded_bytes(ready: Start) -> None:
    server = ready("--shutdown-timeout", "20")
    data, _ = raw_request("chat-stream-count", max_tokens=1900, ignore_eos=True)
    with socket.create_connection(("127.0.0.1", server.port), 5) as held:
        held.sendall(data)
        assert held.recv(65536)
        server.process.terminate()
        deadline = time.monotonic() + 5
        while (answer := exchange(server.port, "drain-new-request-0", stream=True, max_tokens=1)).status == 200:
            assert time.monotonic() < deadline
    assert answer.status == 500
    assert "vary" not in answer.headers
    assert answer.body == (
        b'{"error":{"message":"cannot schedule new futures after shutdown","type":"InternalServerError",'
        b'"param":null,"code":500}}'
    )


def check_killed(ending: Ending) -> None:
    assert ending.stream.end is RecordedEnd.EOF
    assert not ending.stream.last.endswith("0\r\n\r\n")
    assert ending.nonstream.end is RecordedEnd.EOF
    assert ending.exit_code == -9
    assert ending.refused_s is not None
    assert ending.core_gone_s is None  # it lives on, without a parent


def test_sigkill_of_the_api_process_recorded() -> None:
    ending = endings.recorded("sigkill")
    check_killed(ending)
    assert "VLLM::EngineCor" in ending.left


def test_sigkill_of_the_api_process_leaves_an_orphan_that_keeps_the_memory(ready: Start) -> None:
    server = ready()
    ending = endings.watched(server, "kill", watch_s=1.0)
    check_killed(ending)
    assert ending.left == ["core"]
    held = endings.holders(server.card)
    assert len(held) == 1
    assert held[0].bytes_each > 1 << 36
    server.kill()
    endings.await_no_holder(server.card)


def check_engine_died(ending: Ending) -> None:
    assert ending.stream.end is RecordedEnd.COMPLETE
    assert "EngineCore encountered an issue. See stack trace (above) for the root cause." in ending.stream.last or (
        'root cause.", "type": "InternalServerError", "param": null, "code": 500}}' in ending.stream.last
    )
    assert ending.stream.last.endswith("\n\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
    assert '"type":"InternalServerError","param":null,"code":500}}' in ending.nonstream.last
    assert "503" in ending.health
    assert ending.refused_s is not None
    assert ending.exit_code == 0
    assert ending.left == []


def test_an_engines_death_ends_the_process_with_code_0_recorded() -> None:
    check_engine_died(endings.recorded("engine-killed"))


def test_an_engines_death_ends_the_process_with_code_0_simulated(ready: Start) -> None:
    check_engine_died(endings.watched(ready(), "kill-core"))


def test_an_injected_crash_ends_it_in_the_same_way(ready: Start) -> None:
    server = ready()
    server.control("/drift", {"kind": "crash", "magnitude": 1.0})
    assert server.process.wait(10) == 0


def test_sigterm_while_loading_is_ignored_and_the_port_refuses_until_the_end(start: Start) -> None:
    server = start(load_speed=60.0)
    deadline = time.monotonic() + 10
    while "Initializing a V1" not in server.log.read_text(encoding="utf-8"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert not server.answers()
    server.process.terminate()
    server.await_ready()
    assert server.process.poll() is None
    assert exchange(server.port, "get-health").status == 200


def test_a_full_card_ends_a_start_with_code_1(ready: Start) -> None:
    first = ready()
    second = SimulatedServer(*VARIANTS["base"], card=first.card)
    try:
        assert second.process.wait(10) == 1
        assert "ValueError: Free memory on device cuda:0" in second.log.read_text(encoding="utf-8")
    finally:
        second.kill()


@pytest.mark.parametrize("name", ["chat-stream-count", "chat-nonstream"])
def test_a_client_that_leaves_frees_its_place_and_is_no_finished_request(ready: Start, name: str) -> None:
    server = ready()
    data, _ = raw_request(name, max_tokens=1900, ignore_eos=True)
    with socket.create_connection(("127.0.0.1", server.port), 5) as client:
        client.sendall(data)
        endings.await_running(server.port, 1)
        assert exchange(server.port, "get-load").body == b'{"server_load":1}'
    left = time.monotonic()
    endings.await_running(server.port, 0)
    assert time.monotonic() - left < 1  # 0.05 s on a quiet machine
    assert b'finished_reason="abort",model_name="tiny"} 0.0' in endings.metrics(server.port)
    assert exchange(server.port, "get-load").body == b'{"server_load":0}'
