"""Fatal errors of the driver and cards that a killed start leaves busy, seen on the process."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from tests.conformance.endings import await_no_holder, holders
from tests.conformance.targets import SimulatedServer

PEER = {"NCCL_P2P_LEVEL": "SYS"}
STORY = "kimi-k2.5-int4"


@pytest.fixture
def servers() -> Iterator[list[SimulatedServer]]:
    """Every server of a test, killed at its end."""
    made: list[SimulatedServer] = []
    yield made
    for server in made:
        server.kill()


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("code", [31, 79])
def test_an_engine_dies_of_a_fatal_error_and_can_start_again_unless_the_card_is_gone(
    code: int, servers: list[SimulatedServer]
) -> None:
    servers.append(SimulatedServer())
    servers[0].await_ready()
    servers[0].control("/xid", {"code": code, "gpu": 0})
    assert servers[0].process.wait(10) == 0
    assert "engine core exited unexpectedly" in servers[0].log_text()
    servers.append(SimulatedServer(card=servers[0].card))
    if code == 31:
        servers[1].await_ready()
    else:
        assert servers[1].process.wait(10) == 1
        assert "unknown error" in servers[1].log_text()


def test_a_start_that_hangs_on_peer_access_leaves_its_cards_busy_when_it_is_killed(
    servers: list[SimulatedServer],
) -> None:
    servers.append(SimulatedServer(preset=STORY))
    servers[0].await_ready()
    servers[0].control("/drift", {"kind": "p2p-hang", "magnitude": 1})
    servers[0].kill()
    card = servers[0].card
    await_no_holder(card)
    servers.append(SimulatedServer(preset=STORY, card=card, environment=PEER))
    eventually(lambda: "vLLM is using nccl==" in servers[1].log_text())
    eventually(lambda: servers[1].control("/readings")["gpus"][0]["power_w"] == 120.0)
    for pid in (servers[1].process.pid, *(holder.pid for holder in holders(card))):
        os.kill(pid, signal.SIGKILL)
    await_no_holder(card)
    servers.append(SimulatedServer(preset=STORY, card=card, load_speed=0.01))
    eventually(lambda: answers(servers[2].control_port))
    gpu = servers[2].control("/readings")["gpus"][0]
    assert (gpu["utilisation"], gpu["power_w"], gpu["processes"]) == (100, 120.0, [])
