"""Engines, gateways and clients for the live tier; run it with `make test-live` (tests/live/run.sh).

Engines are slow to start, so there are two for the whole session, started at the same time and only when a
chosen test asks for them: `engine_a` is never harmed, `engine_b` may be killed, and who asks for it gets it
running. A run's logs stay in .live/run (or LIVE_FOLDER).
"""

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.live.rig import engine as engines
from tests.live.rig import wire
from tests.live.rig.engine import Engine
from tests.live.rig.fleet import fleet_of
from tests.live.rig.gateway import Gateway
from tests.live.rig.processes import until
from tests.live.rig.ways import GatewayMaker, Served

# The whole tier is about real time, and a fixture may have to start an engine.
TEST_LIMIT_S = 420


FIGURES = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FIGURES] = []
    # Whoever ends a run that takes too long gets the same end as by Ctrl-C: engines and gateways are ended too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what was measured, whether the tests passed or not."""
    if figures := config.stash[FIGURES]:
        terminalreporter.section("figures")
        for line in figures:
            terminalreporter.write_line(line)


@pytest.fixture
def note_figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Keep a measured figure for the end of the run."""
    return request.config.stash[FIGURES].append


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_LIMIT_S))


@pytest.fixture(scope="session")
def run_folder(request: pytest.FixtureRequest) -> Path:
    """Where this run keeps its logs and stores."""
    return fleet_of(request.config).folder


@pytest.fixture(scope="session")
def fleet(request: pytest.FixtureRequest) -> dict[str, Engine]:
    """The engines that the chosen tests ask for, all starting at once."""
    if not engines.installed():
        pytest.fail("no vLLM is installed: tests/live/engine/install.sh makes one (make test-live does it by itself)")
    asked = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    shared = fleet_of(request.config)
    shared.start(name for name in shared.engines if name in asked)
    return shared.engines


@pytest.fixture(scope="session")
def engine_a(fleet: dict[str, Engine]) -> Engine:
    """A healthy engine that no test harms."""
    engine = fleet["engine_a"]
    engine.wait()
    for body in (wire.chat(max_tokens=4), wire.chat(max_tokens=4, logprobs=True)):
        # The first request of an engine is slow, and the first one with logprobs takes 20 s.
        with wire.Call(engine.port, wire.CHAT, body) as call:
            assert call.status == 200
            call.read()
    return engine


@pytest.fixture
def engine_b(fleet: dict[str, Engine]) -> Engine:
    """An engine that a test may kill, with few seats (`FEW_SEATS`); serving now."""
    engine = fleet["engine_b"]
    engine.whole()
    return engine


@pytest.fixture(scope="session")
def start_gateway(run_folder: Path) -> Iterator[GatewayMaker]:
    """Starts gateways: by name, engines, and settings beyond the usual ones; all ended with the session."""
    started: list[Gateway] = []

    def start(name: str, behind: Sequence[Engine], runtime: Mapping[str, Any] | None = None) -> Gateway:
        backends = [{"name": engine.name, "url": engine.url} for engine in behind]
        gateway = Gateway(run_folder / f"gateway-{name}", backends, runtime=runtime)
        started.append(gateway)
        gateway.start()
        return gateway

    yield start
    codes = [(gateway.folder.name, gateway.end()) for gateway in started]
    assert [code for code in codes if code[1] != 0] == [], "a gateway did not end well after SIGTERM"


@pytest.fixture(scope="session")
def gateway(start_gateway: GatewayMaker, engine_a: Engine) -> Gateway:
    """The gateway in front of the healthy engine."""
    return start_gateway("a", [engine_a])


@pytest.fixture(scope="session", params=["direct", "gateway"])
def served(request: pytest.FixtureRequest, engine_a: Engine) -> Served:
    """Both ways in turn: what a test expects of one it expects of the other."""
    if request.param == "direct":
        return Served("direct", engine_a.port)
    return Served("gateway", request.getfixturevalue("gateway").port)


@pytest.fixture
def idle(engine_a: Engine) -> Engine:
    """The healthy engine with nothing running, so that its counters belong to this test."""
    until(lambda: engine_a.running() + engine_a.waiting() == 0, "an idle engine", within_s=30)
    return engine_a
