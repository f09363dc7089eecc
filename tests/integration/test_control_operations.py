"""What operators get from control: reports, and a configuration that is applied whole or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.control import inbox
from gateway.control.link import WorkerRef
from gateway.control.operations import ControlOperations, Installation
from gateway.core.link.messages import PROTOCOL, BackendFailure, Heartbeat, Hello, Settled
from gateway.core.routing.backend import BackendState
from gateway.core.routing.reading import EngineReading
from gateway.settings import load
from tests.fakes.control_parts import ControlParts
from tests.fakes.operators import store_trouble
from tests.fakes.probed_backend import ProbedBackend, listening

pytestmark = pytest.mark.asyncio

WORKER = WorkerRef(session=1, slot=0, pid=4711, started_wall=1.0)


@dataclass
class Bench:
    parts: ControlParts
    operations: ControlOperations
    file: Path

    def write(self, text: str) -> None:
        self.file.write_text(text, encoding="utf-8")

    def states(self) -> dict[str, str]:
        return self.parts.outlet.states


def text_of(*fakes: ProbedBackend, more: str = "") -> str:
    rows = "".join(f'      - {{name: {name}, url: "{fake.url}"}}\n' for name, fake in zip("abc", fakes, strict=False))
    return f"pools:\n  - name: p\n    backends:\n{rows}{more}"


@asynccontextmanager
async def bench(folder: Path, *fakes: ProbedBackend) -> AsyncIterator[Bench]:
    file = folder / "gateway.yaml"
    file.write_text(text_of(*fakes))
    settings = load(file, environ={})
    parts = ControlParts(folder, *settings.runtime.pools)
    installation = Installation(
        version="1.2.3",
        started_wall=500.0,
        config_path=file,
        environ={"SECRET": "x"},
        restart_needed=lambda read: ("workers: 1 → 3",) if read.install.workers == 3 else (),
    )
    operations = ControlOperations(
        parts.loop,
        installation,
        history=parts.history,
        events=parts.events,
        keeper=parts.keeper,
        clock=parts.clock,
        wall=lambda: parts.clock() + 1000.0,
        log_dropped=lambda: 3,
    )
    try:
        await parts.loop.begin()
        yield Bench(parts, operations, file)
    finally:
        await parts.close()


def work(parts: ControlParts) -> None:
    parts.loop.worker_said(WORKER, Hello(protocol=PROTOCOL, slot=0, pid=4711, started_wall=1.0))
    outcomes = {"chat|tiny|a|ok|200": 5, "chat|tiny|a|rejected|400": 1}
    beat = Heartbeat(slot=0, sent_at=0.0, generation=1, in_flight={"a": 2}, holding=3, connections=4, outcomes=outcomes)
    parts.loop.worker_said(WORKER, beat)


async def test_the_status_tells_the_whole_gateway(tmp_path: Path) -> None:
    async with listening(ProbedBackend()) as fake, bench(tmp_path, fake) as it:
        assert it.operations.status().summary == "DOWN: no worker is connected"
        work(it.parts)
        status = it.operations.status()
        assert status.summary == "all well: 1 of 1 backends serve, 3 requests in flight"
        assert (status.version, status.started_wall, status.config_path) == ("1.2.3", 500.0, str(it.file))
        assert (status.in_flight, status.outcomes, status.generation) == (3, {"ok": 5, "rejected": 1}, 1)
        assert [(worker.slot, worker.pid, worker.fresh) for worker in status.workers] == [(0, 4711, True)]
        assert [(pool.name, pool.models, pool.serving) for pool in status.pools] == [("p", ("tiny",), 1)]
        assert (status.store_rows, status.store_problem) == (0, "")
        it.parts.history.trouble = store_trouble()
        assert "requests are not recorded" in it.operations.status().summary


async def test_backends_are_told_in_order_and_one_by_its_name(tmp_path: Path) -> None:
    async with listening(ProbedBackend()) as a, listening(ProbedBackend()) as b, bench(tmp_path, a, b) as it:
        work(it.parts)
        assert [report.name for report in it.operations.backends()] == ["a", "b"]
        report = it.operations.backend("a")
        assert report is not None
        assert (report.state, report.in_flight, report.requests_total) == (BackendState.SERVING, 2, 6)
        assert it.operations.backend("ghost") is None


async def test_what_engines_die_of_is_told_with_its_times_and_let_in_again(tmp_path: Path) -> None:
    async with listening(ProbedBackend()) as a, listening(ProbedBackend()) as b, bench(tmp_path, a, b) as it:
        assert (it.operations.quarantined(), it.operations.release("f")) == ((), False)
        now = it.parts.clock()
        for name in "ab":
            died = BackendFailure(backend=name, code="engine_dead", at=now, fingerprint="f")
            it.parts.loop.worker_said(WORKER, Settled(slot=0, records=[], failures=[died]))
        (report,) = it.operations.quarantined()
        assert (report.fingerprint, report.backends) == ("f", ("a", "b"))
        assert report.first_wall == pytest.approx(now + 1000.0, abs=1.0)
        assert report.until_wall == pytest.approx(now + 1600.0, abs=1.0)
        assert it.operations.release("f")
        assert it.operations.quarantined() == ()


async def test_a_backend_is_told_with_its_curve(tmp_path: Path) -> None:
    async with listening(ProbedBackend()) as fake, bench(tmp_path, fake) as it:
        now = it.parts.clock() + 10_000.0
        for at in (0.0, 2.0):
            reading = EngineReading(read_at=now + at, generation_tokens=1e9 + 100 * at, running=1.0)
            it.parts.loop.post(inbox.NumbersRead("a", reading))
        report = it.operations.backend("a")
        assert report is not None
        assert [(point.streams, point.tps) for point in report.curve] == [(1.0, 100.0)]


async def test_a_scrape_has_everything_at_one_moment(tmp_path: Path) -> None:
    async with listening(ProbedBackend()) as fake, bench(tmp_path, fake) as it:
        work(it.parts)
        it.parts.metrics.follow(it.operations.figures)
        page = it.parts.metrics.text().decode()
    labels = 'backend="a",endpoint="chat",model="tiny",outcome="ok",status="2xx"'
    assert f"pacekeeper_requests_total{{{labels}}} 5.0" in page
    assert 'pacekeeper_backend_state{backend="a",pool="p",state="serving"} 1.0' in page
    assert "pacekeeper_log_lines_dropped_total 3.0" in page


async def test_a_reload_applies_the_file_at_once_and_says_what_changed(tmp_path: Path) -> None:
    async with listening(ProbedBackend()) as a, listening(ProbedBackend()) as b, bench(tmp_path, a, b) as it:
        it.write(text_of(a, more="timers: {stall_s: 60}\nworkers: 3\n"))
        verdict = await it.operations.reload()
        assert verdict.applied
        assert verdict.faults == ()
        assert verdict.changes == (
            "backend b: removed; answers that are open go on, its engine is left alone",
            "timers.stall_s 120 → 60",
        )
        assert verdict.needs_restart == ("workers: 1 → 3",)
        assert it.states() == {"a": "serving"}
        assert it.parts.outlet.snapshots[-1].policy.timers.stall_s == 60.0
        assert it.operations.status().config_loaded_wall > 1000.0
        (event,) = it.parts.log.named("config.loaded")
        assert event["changes"] == list(verdict.changes)


@pytest.mark.parametrize(
    "text,fault",
    [
        ("pools: [", "not valid YAML"),
        ("pools: []\n", "pools"),
        ("poolz: []\n", "unknown key"),
    ],
)
async def test_with_a_fault_in_the_file_nothing_changes_and_every_fault_is_told(
    tmp_path: Path, text: str, fault: str
) -> None:
    async with listening(ProbedBackend()) as fake, bench(tmp_path, fake) as it:
        before = it.parts.outlet.snapshots[-1]
        it.write(text)
        verdict = await it.operations.reload()
        assert not verdict.applied
        assert any(fault in line for line in verdict.faults)
        assert it.parts.loop.state.fleet.snapshot() is before
        assert it.operations.status().config_loaded_wall == 500.0
        (event,) = it.parts.log.named("config.refused")
        assert event["faults"] == list(verdict.faults)


async def test_a_file_that_is_gone_or_is_no_text_is_a_fault(tmp_path: Path) -> None:
    async with listening(ProbedBackend()) as fake, bench(tmp_path, fake) as it:
        it.file.write_bytes(b"\xff\xfe")
        assert "not UTF-8" in (await it.operations.reload()).faults[0]
        it.file.unlink()
        assert str(it.file) in (await it.operations.reload()).faults[0]


async def test_a_check_says_what_a_text_or_the_file_would_change_and_applies_nothing(tmp_path: Path) -> None:
    async with listening(ProbedBackend()) as fake, bench(tmp_path, fake) as it:
        changed = text_of(fake, more="workers: 3\nlimits: {in_flight: 5}\n")
        verdict = await it.operations.check(changed)
        assert (verdict.applied, verdict.faults) == (False, ())
        assert verdict.changes == ("limits.in_flight 8192 → 5",)
        assert verdict.needs_restart == ("workers: 1 → 3",)
        assert (await it.operations.check(None)).changes == ()
        it.write("nonsense: 1\n")
        assert (await it.operations.check(None)).faults
        assert (await it.operations.check("x: [")).faults
        assert len(it.parts.outlet.snapshots) == 1


async def test_what_was_applied_is_remembered_for_the_next_life(tmp_path: Path) -> None:
    began = tmp_path / "install.json"
    async with listening(ProbedBackend()) as fake, bench(tmp_path, fake) as it:
        began.touch()
        text = text_of(fake, more="timers: {stall_s: 61}\n")
        it.write(text)
        await it.operations.reload()
        it.write("broken: [")
        await it.operations.reload()
        assert it.parts.keepsake.config(newer_than=began) == text
