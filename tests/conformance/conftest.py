"""Targets of the conformance suite: the recordings, simulated engines and real ones.

`CONFORMANCE_TARGETS` names those that are asked, separated by commas; without it `recordings,simulator`, which need
nothing but Python. `real` starts the engines of the live tier (`make test-live` asks it). `CONFORMANCE_ENGINE_URL` and
`CONFORMANCE_ENGINE_URL_INTERVAL4`, `_INTERVAL100`, `_NOPARSER`, `_QUEUED`, `_METRICS` (http://127.0.0.1:PORT) name
engines that run already, started as the recorded server of that name was: they are asked, and never harmed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.conformance.servers import REAL_PATIENCE_S, Lender, RealServers, SimulatedServers
from tests.conformance.targets import Asked, Recorded, Target, variant_of
from tests.live.rig.engine import installed
from tests.live.rig.fleet import fleet_of

# A real engine may have to be started first, and the one that a full machine starts takes minutes.
REAL_LIMIT_S = 420
# The order of real engines. Whoever strikes comes last and gets those that the other checks have just done with: at
# most two run at a time. The one with metrics is the live tier's.
REAL_ORDER = ("metrics", "interval4", "interval100", "noparser", "queued", "guarded", "base")
LAST = "test_endings.py"


def chosen() -> list[str]:
    """The targets that this run asks."""
    named = os.environ.get("CONFORMANCE_TARGETS", "recordings,simulator").split(",")
    if os.environ.get("CONFORMANCE_ENGINE_URL") and "real" not in named:
        named.append("real")
    return named


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" in metafunc.fixturenames:
        metafunc.parametrize("target", chosen(), indirect=True)
    if "servers" in metafunc.fixturenames:
        kinds = [name for name in ("simulator", "real") if name in chosen()]
        metafunc.parametrize("servers", kinds or ["simulator"], indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what asks no chosen target; ask real engines in an order that starts few of them."""
    here = [item for item in items if item.path.is_relative_to(config.rootpath / "tests" / "conformance")]
    out = [item for item in here if not asked_of(item) & set(chosen())]
    real = [item for item in here if "real" in asked_of(item) and item not in out]
    for item in real:
        item.add_marker(pytest.mark.timeout(REAL_LIMIT_S))
    rest = [item for item in items if item not in out and item not in real]
    items[:] = sorted(real, key=turn_of) + rest
    config.hook.pytest_deselected(items=out)


def turn_of(item: pytest.Item) -> int:
    """When a check asks a real engine: those of one engine after each other, so that each is started once.

    Which one it needs is read from the words in it: names of recordings and of engines.
    """
    if item.path.name == LAST or not isinstance(item, pytest.Function):
        return len(REAL_ORDER)
    name = item.callspec.params.get("name") if hasattr(item, "callspec") else None
    words = [name] if name else [word for word in item.function.__code__.co_consts if isinstance(word, str)]
    needed = {word if word in REAL_ORDER else variant_of(str(word)) for word in words} - {"base"}
    return max(map(REAL_ORDER.index, needed), default=REAL_ORDER.index("base"))


def asked_of(item: pytest.Item) -> set[str]:
    """The targets that a check asks; one that takes neither fixture is about recordings or the simulator alone."""
    values = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return {str(values[name]) for name in ("target", "servers") if name in values} or {"recordings", "simulator"}


@pytest.fixture(scope="session")
def simulators() -> Iterator[SimulatedServers]:
    """The simulated servers of the run."""
    made = SimulatedServers()
    yield made
    made.end()


@pytest.fixture(scope="session")
def engines(request: pytest.FixtureRequest) -> Iterator[RealServers]:
    """The real engines of the run."""
    if not installed():
        pytest.fail("no vLLM is installed: tests/live/engine/install.sh makes one (make test-live does it by itself)")
    made = RealServers(fleet_of(request.config))
    yield made
    made.end()


@pytest.fixture
def target(request: pytest.FixtureRequest) -> Target:
    """Who is asked the recorded requests."""
    match request.param:
        case "recordings":
            return Recorded()
        case "simulator":
            lender: Lender = request.getfixturevalue("simulators")
            return Asked("simulator", lambda variant: lender.shared(variant).port)
        case _:
            return Asked("real", lambda variant: real_port(request, variant), patience_s=REAL_PATIENCE_S)


def real_port(request: pytest.FixtureRequest, variant: str) -> int:
    """Where the engine of a variant listens: the one that the environment names, or one that is started here."""
    suffix = "" if variant == "base" else f"_{variant.upper()}"
    url = os.environ.get(f"CONFORMANCE_ENGINE_URL{suffix}", "")
    if url:
        return urlsplit(url).port or 80
    if os.environ.get("CONFORMANCE_ENGINE_URL"):
        pytest.skip(f"CONFORMANCE_ENGINE_URL{suffix} names no engine")
    lender: Lender = request.getfixturevalue("engines")
    return lender.shared(variant).port


@pytest.fixture
def servers(request: pytest.FixtureRequest) -> Iterator[Lender]:
    """Servers to ask or to strike, of one kind; the struck ones are ended after the check."""
    if request.param == "real" and os.environ.get("CONFORMANCE_ENGINE_URL"):
        pytest.skip("an engine that somebody else started is not struck")
    lender: Lender = request.getfixturevalue("simulators" if request.param == "simulator" else "engines")
    yield lender
    lender.end_own()


@pytest.fixture
def simulated(simulators: SimulatedServers) -> Iterator[SimulatedServers]:
    """Simulated servers, for what only they can show."""
    yield simulators
    simulators.end_own()


@pytest.fixture
def recorded() -> Target:
    """The recordings, to hold an answer against."""
    return Recorded()
