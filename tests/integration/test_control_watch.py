"""The watch over one backend, over real sockets: what is asked for when, and what is reported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from gateway import aio
from gateway.control import watch as watch_module
from gateway.control.probe import ProbeFailed
from gateway.control.watch import Watch
from gateway.core.routing.evidence import Probed, ProbeResult
from gateway.core.routing.reading import EngineReading
from gateway.core.routing.snapshot import ModelCard
from tests.fakes.fleets import backend
from tests.fakes.probed_backend import ProbedBackend, answer, listening

pytestmark = pytest.mark.asyncio


@dataclass
class Seen:
    """Keeps what a watch reports, in order; ``period_s`` is what it is told to wait."""

    period_s: float = 60.0
    scrape_s: float = 60.0
    serving: bool = False
    order: list[str] = field(default_factory=list)
    health: list[Probed] = field(default_factory=list)
    models: list[tuple[list[str], str]] = field(default_factory=list)
    numbers: list[EngineReading] = field(default_factory=list)
    problems: list[tuple[str, ProbeResult, str]] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    break_next: bool = False
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def _note(self, what: str) -> None:
        self.order.append(what)
        self._news.set()
        self._news = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await self._news.wait()

    def health_seen(self, backend: str, probed: Probed) -> None:
        if self.break_next:
            self.break_next = False
            raise KeyError("a defect")
        self.health.append(probed)
        self._note("health")

    def models_seen(self, backend: str, cards: tuple[ModelCard, ...], *, version: str) -> None:
        self.models.append(([card.id for card in cards], version))
        self._note("models")

    def numbers_seen(self, backend: str, reading: EngineReading) -> None:
        self.numbers.append(reading)
        self._note("numbers")

    def unreadable(self, backend: str, path: str, failure: ProbeFailed) -> None:
        self.problems.append((path, failure.result, failure.detail))
        self._note(f"unreadable {path}")

    def is_serving(self, backend: str) -> bool:
        return self.serving

    def probe_period_s(self, backend: str) -> float:
        return self.period_s

    def scrape_period_s(self) -> float:
        return self.scrape_s

    def watch_failed(self, backend: str, error: Exception) -> None:
        self.failures.append(error)
        self._note("failed")


@asynccontextmanager
async def watching(fake: ProbedBackend, seen: Seen, *, timeout_s: float = 5.0) -> AsyncIterator[Watch]:
    clock = asyncio.get_running_loop().time
    watch = Watch(backend("a", url=fake.url), sightings=seen, environ={}, timeout_s=timeout_s, clock=clock)
    task = aio.spawn(watch.run(), name="watch")
    try:
        yield watch
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_good_backend_is_reported_with_its_models_first_so_that_it_serves_with_them() -> None:
    seen = Seen()
    async with listening(ProbedBackend(models=["m", "lora"])) as fake, watching(fake, seen):
        await seen.until(lambda: bool(seen.health))
    assert [it for it in seen.order if it != "numbers"] == ["models", "health"]
    assert seen.models == [(["m", "lora"], "0.32.0")]
    assert seen.health == [Probed(result=ProbeResult.OK)]


@pytest.mark.parametrize(
    "raw,expected",
    [
        (answer(503), Probed(result=ProbeResult.BAD_STATUS, detail="/health answered 503")),
        (answer(302, headers="location: /\r\n"), Probed(result=ProbeResult.BAD_STATUS, detail="/health answered 302")),
        (b"nonsense\r\n\r\n", Probed(result=ProbeResult.GARBLED, detail="the answer was not HTTP")),
    ],
)
async def test_a_bad_answer_is_reported_and_models_are_not_asked_for(raw: bytes, expected: Probed) -> None:
    seen = Seen()
    async with listening(ProbedBackend(raw={"/health": raw})) as fake, watching(fake, seen):
        await seen.until(lambda: bool(seen.health))
        assert (seen.health, fake.asked["/v1/models"]) == ([expected], 0)


async def test_a_probe_that_is_asked_for_comes_before_its_time() -> None:
    seen = Seen(period_s=3600.0)
    async with listening(ProbedBackend()) as fake, watching(fake, seen) as watch:
        await seen.until(lambda: len(seen.health) == 1)
        watch.probe_now()
        await seen.until(lambda: len(seen.health) == 2)
        assert fake.asked["/v1/models"] == 1, "the models are known"
        watch.read_models_now()
        await seen.until(lambda: len(seen.health) == 3)
        assert fake.asked["/v1/models"] == 2


async def test_models_are_read_again_after_a_bad_probe() -> None:
    seen = Seen(period_s=0.01)
    async with listening(ProbedBackend()) as fake, watching(fake, seen):
        await seen.until(lambda: len(seen.models) == 1)
        fake.health, fake.models = 503, ["other"]
        await seen.until(lambda: seen.health[-1].result is ProbeResult.BAD_STATUS)
        fake.health = 200
        await seen.until(lambda: seen.health[-1].result is ProbeResult.OK)
    assert [models for models, _ in seen.models] == [["tiny"], ["other"]]


async def test_models_of_a_serving_backend_are_read_again_at_their_own_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "MODELS_S", 0.05)
    seen = Seen(period_s=0.01, serving=True)
    async with listening(ProbedBackend()) as fake, watching(fake, seen):
        await seen.until(lambda: len(seen.models) == 1)
        fake.models = ["tiny", "new"]
        await seen.until(lambda: seen.models[-1][0] == ["tiny", "new"])


@pytest.mark.parametrize(
    "raw,problem",
    [
        (answer(401), (ProbeResult.BAD_STATUS, "answered 401, is api_key_env right?")),
        (answer(500), (ProbeResult.BAD_STATUS, "answered 500")),
        (answer(body=b"<html>"), (ProbeResult.GARBLED, "not a list of models")),
        (answer(body=b"x" * 1_100_000), (ProbeResult.GARBLED, "an answer over 1048576 bytes")),
    ],
)
async def test_models_that_cannot_be_read_do_not_hold_health_up_and_are_tried_again(
    raw: bytes, problem: tuple[ProbeResult, str]
) -> None:
    seen = Seen(period_s=0.01)
    async with listening(ProbedBackend(raw={"/v1/models": raw})) as fake, watching(fake, seen):
        await seen.until(lambda: len(seen.health) == 1)
        assert seen.problems[0] == ("/v1/models", *problem)
        del fake.raw["/v1/models"]
        await seen.until(lambda: bool(seen.models))


@pytest.mark.parametrize(
    "raw", [answer(404), answer(body=b"[]"), answer(body=b'{"version": "a\\nb"}'), answer(body=b"\xff")]
)
async def test_a_version_that_is_not_told_is_not_missed(raw: bytes) -> None:
    seen = Seen()
    async with listening(ProbedBackend(raw={"/version": raw})) as fake, watching(fake, seen):
        await seen.until(lambda: bool(seen.models))
    assert seen.models == [(["tiny"], "")]
    assert not [path for path, _, _ in seen.problems if path == "/version"]


async def test_numbers_are_read_again_and_again_dated_by_the_asking() -> None:
    seen = Seen(scrape_s=0.01)
    clock = asyncio.get_running_loop().time
    async with listening(ProbedBackend(tokens=7.0, running=2.0)) as fake, watching(fake, seen):
        await seen.until(lambda: len(seen.numbers) == 1)
        before = clock()
        fake.tokens = 9.0
        await seen.until(lambda: seen.numbers[-1].generation_tokens == 9.0)
    first, last = seen.numbers[0], seen.numbers[-1]
    assert (first.generation_tokens, first.running, first.waiting) == (7.0, 2.0, 0.0)
    assert first.read_at <= before <= clock()
    assert last.read_at > first.read_at


@pytest.mark.parametrize(
    "raw,problem",
    [
        (answer(404), (ProbeResult.BAD_STATUS, "answered 404")),
        (answer(body=b"\x00garbage{{{\n"), (ProbeResult.GARBLED, "no vllm:generation_tokens_total in it")),
        (answer(body=b"y" * 5_000_000), (ProbeResult.GARBLED, "an answer over 4194304 bytes")),
    ],
)
async def test_numbers_that_cannot_be_read_are_reported_and_tried_again(
    raw: bytes, problem: tuple[ProbeResult, str]
) -> None:
    seen = Seen(scrape_s=0.01)
    async with listening(ProbedBackend(raw={"/metrics": raw})) as fake, watching(fake, seen):
        await seen.until(lambda: bool(seen.problems))
        assert seen.problems[0] == ("/metrics", *problem)
        del fake.raw["/metrics"]
        await seen.until(lambda: bool(seen.numbers))


async def test_a_defect_of_ours_is_reported_and_the_watch_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "RESTART_S", 0.01)
    seen = Seen(break_next=True)
    async with listening(ProbedBackend()) as fake, watching(fake, seen):
        await seen.until(lambda: bool(seen.health))
    assert len(seen.failures) == 1


async def test_the_end_of_a_watch_closes_its_connections() -> None:
    seen = Seen()
    async with listening(ProbedBackend()) as fake:
        async with watching(fake, seen):
            await seen.until(lambda: bool(seen.health) and bool(seen.numbers))
        await fake.until(lambda: fake.connections == 0)
