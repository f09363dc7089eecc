"""The command that runs a simulated engine: what it says, how it is stopped at a terminal, what it leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.conformance.endings import await_no_holder, holders
from tests.conformance.targets import SimulatedServer


@pytest.fixture
def loading() -> Iterator[SimulatedServer]:
    """An engine that takes some seconds to load."""
    server = SimulatedServer(load_speed=40.0)
    yield server
    server.kill()


@pytest.fixture(scope="module")
def standing() -> Iterator[SimulatedServer]:
    """An engine that serves and that nobody ends."""
    server = SimulatedServer()
    server.await_ready()
    yield server
    server.kill()


@pytest.fixture
def serving() -> Iterator[SimulatedServer]:
    server = SimulatedServer()
    server.await_ready()
    yield server
    server.kill()


def test_ctrl_c_ends_it_with_code_0_and_leaves_no_process(serving: SimulatedServer) -> None:
    os.killpg(serving.process.pid, signal.SIGINT)
    assert serving.process.wait(10) == 0
    await_no_holder(serving.card)


def test_ctrl_c_ends_it_while_loading_too(loading: SimulatedServer) -> None:
    deadline = time.monotonic() + 10
    while not holders(loading.card):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(loading.process.pid, signal.SIGINT)
    assert loading.process.wait(10) == 0
    await_no_holder(loading.card)


def test_a_preset_that_is_not_there_is_wrong_usage_and_the_others_are_named() -> None:
    code = "from gateway.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "simulate-engine", "--preset", "none"],
        check=False,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 2
    assert "qwen3-8b-h200" in done.stderr


def test_the_control_port_refuses_what_it_does_not_know(serving: SimulatedServer) -> None:
    assert "error" in serving.control("/nothing")
    assert "error" in serving.control("/drift", {"kind": "nonsense", "magnitude": 1})
    assert serving.control("/sigterm", {"ending": "hang"})["sigterm"] == "hang"


@pytest.mark.parametrize(
    "path, body",
    [
        ("/drift", {"kind": "context", "magnitude": 1e308}),
        ("/drift", {"kind": "slow-ramp", "magnitude": 0.1, "ramp_s": 0}),
        ("/drift", {"kind": "state-step", "magnitude": -5}),
        ("/drift", {"kind": "thermal", "magnitude": 0.1, "gpu": 1}),
        ("/drift", {"kind": "thermal", "magnitude": 0.1, "colour": "red"}),
        ("/xid", {"code": 0}),
        ("/xid", {"code": 79, "gpu": 8}),
        ("/wedge", {"bytes": -1}),
        ("/wedge", {"bytes": 10**18}),
        ("/sigterm", {"ending": "hang", "when": "now"}),
    ],
)
def test_the_control_port_says_what_cannot_be_and_nothing_changes(
    standing: SimulatedServer, path: str, body: dict[str, object]
) -> None:
    before = standing.control("/state"), standing.control("/readings")["xids"]
    assert standing.control(path, body)["error"]
    assert (standing.control("/state"), standing.control("/readings")["xids"]) == before
