"""Targets of the conformance suite: `recordings`, `simulator`, and `real` where the environment names an engine.

`CONFORMANCE_ENGINE_URL` (http://127.0.0.1:PORT) is a real vLLM started as the recorded base server; the other recorded
servers may be named by `CONFORMANCE_ENGINE_URL_INTERVAL4`, `_INTERVAL100`, `_NOPARSER`, `_QUEUED` and `_METRICS`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.conformance.targets import VARIANTS, Asked, Recorded, SimulatedServer, Target


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" in metafunc.fixturenames:
        real = ["real"] if os.environ.get("CONFORMANCE_ENGINE_URL") else []
        metafunc.parametrize("target", ["recordings", "simulator", *real], indirect=True)


class Servers:
    """Simulated servers, one a variant, started when first asked for."""

    def __init__(self) -> None:
        self.running: dict[str, SimulatedServer] = {}

    def port_of(self, variant: str) -> int:
        if variant not in self.running:
            self.running[variant] = SimulatedServer(*VARIANTS[variant])
            self.running[variant].await_ready()
        return self.running[variant].port


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    made = Servers()
    yield made
    for server in made.running.values():
        server.kill()


def real_port(variant: str) -> int:
    suffix = "" if variant == "base" else f"_{variant.upper()}"
    url = os.environ.get(f"CONFORMANCE_ENGINE_URL{suffix}", "")
    if not url:
        pytest.skip(f"CONFORMANCE_ENGINE_URL{suffix} names no engine")
    return urlsplit(url).port or 8000


@pytest.fixture
def target(request: pytest.FixtureRequest) -> Target:
    match request.param:
        case "recordings":
            return Recorded()
        case "simulator":
            return Asked("simulator", request.getfixturevalue("servers").port_of)
        case _:
            return Asked("real", real_port)


@pytest.fixture
def recorded() -> Target:
    """The recordings, to hold an answer against."""
    return Recorded()
