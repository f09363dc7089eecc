"""Watches one backend for as long as it is in the fleet: health, models and numbers, each at its own pace.

Health is asked more often while something is wrong, at once when the loop says so.  Models are read before a backend
that was away is reported well, so that it serves with the list of the process that runs now.  What is seen goes to the
control loop as it is.  Must not judge, and holds no state of a backend but when it was looked at.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from gateway.control.probe import HEALTH_PATH, METRICS_PATH, MODELS_PATH, VERSION_PATH, ProbeClient, ProbeFailed
from gateway.core.routing.evidence import Probed, ProbeResult
from gateway.core.routing.inventory import InventoryUnreadable, parse_models
from gateway.core.routing.reading import EngineReading, parse_metrics
from gateway.core.routing.snapshot import ModelCard
from gateway.settings import Backend

MODELS_S: Final = 30.0
"""How often the models of a serving backend are read again: LoRA adapters come and go without a restart."""

MODELS_AWAY_S: Final = 5.0
"""The same while it does not serve."""

MIN_GAP_S: Final = 0.1
"""Between two health probes, however often a probe is asked for."""

RESTART_S: Final = 1.0
"""Pause before a watch that failed by a defect of ours begins again."""

HEALTH_BYTES: Final = 64 * 1024
MODELS_BYTES: Final = 1024 * 1024
METRICS_BYTES: Final = 4 * 1024 * 1024
_VERSION_CHARS: Final = 64


class Sightings(Protocol):
    """Where a watch reports and what it asks; implemented by the control loop.  Every method returns at once."""

    def health_seen(self, backend: str, probed: Probed) -> None:
        """A health probe ended."""
        ...

    def models_seen(self, backend: str, cards: tuple[ModelCard, ...], *, version: str) -> None:
        """The models were read; ``version`` "" where the engine does not tell it."""
        ...

    def numbers_seen(self, backend: str, reading: EngineReading) -> None:
        """The engine's numbers were read."""
        ...

    def unreadable(self, backend: str, path: str, failure: ProbeFailed) -> None:
        """Models or numbers could not be read."""
        ...

    def is_serving(self, backend: str) -> bool:
        """Whether the fleet has it serving."""
        ...

    def probe_period_s(self, backend: str) -> float:
        """How long to wait before the next health probe."""
        ...

    def scrape_period_s(self) -> float:
        """How long to wait between two readings of the numbers."""
        ...

    def watch_failed(self, backend: str, error: Exception) -> None:
        """A defect of ours ended the watch; it begins again."""
        ...


class _Version(msgspec.Struct):
    version: str = ""


class Watch:
    """The watch over one backend; :meth:`run` runs until it is cancelled."""

    def __init__(
        self,
        backend: Backend,
        *,
        sightings: Sightings,
        environ: Mapping[str, str],
        timeout_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._backend = backend
        self._name = backend.name
        self._sightings = sightings
        self._environ = environ
        self._timeout_s = timeout_s
        self._clock = clock
        self._wake = asyncio.Event()
        self._models_at: float | None = None

    def probe_now(self) -> None:
        """Have the health asked at once; returns at once."""
        self._wake.set()

    def read_models_now(self) -> None:
        """Have the models read with the next health probe, which comes at once."""
        self._models_at = None
        self._wake.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            try:
                async with (
                    ProbeClient(self._backend, environ=self._environ, timeout_s=self._timeout_s) as client,
                    asyncio.TaskGroup() as tasks,
                ):
                    tasks.create_task(self._watch_health(client), name=f"health {self._name}")
                    tasks.create_task(self._watch_numbers(client), name=f"numbers {self._name}")
            except Exception as error:  # noqa: BLE001 - task root: one backend's odd answer must not end its watch
                self._sightings.watch_failed(self._name, error)
                await asyncio.sleep(RESTART_S)

    # --- health and models ----------------------------------------------------------------------------------------

    async def _watch_health(self, client: ProbeClient) -> None:
        while True:
            self._wake.clear()
            probed = await self._health(client)
            if probed.result is not ProbeResult.OK:
                self._models_at = None  # what comes back may be another process with other models
            elif self._models_due():
                await self._read_models(client)
            self._sightings.health_seen(self._name, probed)
            await self._pause(self._sightings.probe_period_s(self._name))

    async def _pause(self, period_s: float) -> None:
        await asyncio.sleep(min(MIN_GAP_S, period_s))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, period_s - MIN_GAP_S)):
                await self._wake.wait()

    async def _health(self, client: ProbeClient) -> Probed:
        try:
            answer = await client.get(HEALTH_PATH, max_bytes=HEALTH_BYTES)
        except ProbeFailed as failure:
            return Probed(result=failure.result, detail=failure.detail)
        if answer.status != 200:
            return Probed(result=ProbeResult.BAD_STATUS, detail=f"{HEALTH_PATH} answered {answer.status}")
        return Probed(result=ProbeResult.OK)

    def _models_due(self) -> bool:
        period_s = MODELS_S if self._sightings.is_serving(self._name) else MODELS_AWAY_S
        return self._models_at is None or self._clock() - self._models_at >= period_s

    async def _read_models(self, client: ProbeClient) -> None:
        async with asyncio.TaskGroup() as tasks:
            version = tasks.create_task(self._version(client), name=f"version {self._name}")
            models = tasks.create_task(self._models(client), name=f"models {self._name}")
        if (cards := models.result()) is not None:
            self._models_at = self._clock()
            self._sightings.models_seen(self._name, cards, version=version.result())

    async def _models(self, client: ProbeClient) -> tuple[ModelCard, ...] | None:
        try:
            return parse_models(await _page(client, MODELS_PATH, max_bytes=MODELS_BYTES))
        except InventoryUnreadable as error:
            self._sightings.unreadable(self._name, MODELS_PATH, ProbeFailed(ProbeResult.GARBLED, str(error)))
        except ProbeFailed as failure:
            self._sightings.unreadable(self._name, MODELS_PATH, failure)
        return None

    async def _version(self, client: ProbeClient) -> str:
        """The engine's version, "" where it does not tell: other servers than vLLM need not have one."""
        try:
            page = await _page(client, VERSION_PATH, max_bytes=HEALTH_BYTES)
            version = msgspec.json.decode(page, type=_Version).version
        except (ProbeFailed, msgspec.MsgspecError, UnicodeDecodeError):
            return ""
        return version[:_VERSION_CHARS] if version.isprintable() else ""

    # --- numbers --------------------------------------------------------------------------------------------------

    async def _watch_numbers(self, client: ProbeClient) -> None:
        while True:
            asked_at = self._clock()
            try:
                reading = await self._numbers(client, asked_at)
            except ProbeFailed as failure:
                self._sightings.unreadable(self._name, METRICS_PATH, failure)
            else:
                self._sightings.numbers_seen(self._name, reading)
            await asyncio.sleep(max(0.0, asked_at + self._sightings.scrape_period_s() - self._clock()))

    @staticmethod
    async def _numbers(client: ProbeClient, asked_at: float) -> EngineReading:
        """One reading, dated by the asking: it may seem older than it is, never fresher.  Raises ProbeFailed."""
        page = await _page(client, METRICS_PATH, max_bytes=METRICS_BYTES)
        reading = parse_metrics(page, read_at=asked_at)
        if reading.generation_tokens is None:
            raise ProbeFailed(ProbeResult.GARBLED, "no vllm:generation_tokens_total in it")
        return reading


async def _page(client: ProbeClient, path: str, *, max_bytes: int) -> bytes:
    """The body of an answer with status 200.  Raises ProbeFailed."""
    answer = await client.get(path, max_bytes=max_bytes)
    if answer.status != 200:
        hint = ", is api_key_env right?" if answer.status in {401, 403} else ""
        raise ProbeFailed(ProbeResult.BAD_STATUS, f"answered {answer.status}{hint}")
    return answer.body
