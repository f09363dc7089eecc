"""The control loop over real backends: what workers get when backends come, go and change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway import aio
from gateway.control import inbox
from gateway.control import loop as loop_module
from gateway.control import watch as watch_module
from gateway.control.link import WorkerRef
from gateway.core.link.messages import (
    PROTOCOL,
    BackendFailure,
    ControlMessage,
    Heartbeat,
    Hello,
    NewSnapshot,
    Pulse,
    Settled,
    Shares,
)
from gateway.settings import Pool
from tests.fakes.control_parts import ControlParts
from tests.fakes.fleets import backend, pool, runtime
from tests.fakes.probed_backend import HANG, ProbedBackend, answer, listening
from tests.fakes.settled import record_of

pytestmark = pytest.mark.asyncio

WORKER = WorkerRef(session=1, slot=0, pid=4711, started_wall=1.0)
HELLO = Hello(protocol=PROTOCOL, slot=0, pid=4711, started_wall=1.0)

QUICK = {"probes": {"health_s": 0.02, "scrape_s": 0.02}}


def beat(*, share: int | None = None) -> Heartbeat:
    return Heartbeat(
        slot=0, sent_at=0.0, generation=1, in_flight={}, holding=0, connections=0, outcomes={}, share=share
    )


def one_pool(*fakes: ProbedBackend) -> Pool:
    return pool("p", *(backend(name, url=fake.url) for name, fake in zip("abcd", fakes, strict=False)))


@asynccontextmanager
async def begun(parts: ControlParts) -> AsyncIterator[ControlParts]:
    try:
        await parts.loop.begin()
        yield parts
    finally:
        await parts.close()


async def test_the_first_thing_that_workers_hear_is_what_the_first_look_found(tmp_path: Path) -> None:
    async with (
        listening(ProbedBackend(models=["m"])) as good,
        listening(ProbedBackend(health=503)) as bad,
        begun(ControlParts(tmp_path, one_pool(good, bad), probes={"fall": 1})) as parts,
    ):
        assert parts.outlet.states == {"a": "serving", "b": "ejected"}
        assert len(parts.outlet.snapshots) == 1
        assert [card.id for card in parts.outlet.snapshots[0].cards] == ["m"]


async def test_a_backend_that_hangs_holds_the_first_look_up_only_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "FIRST_ROUND_S", 0.2)
    async with (
        listening(ProbedBackend()) as good,
        listening(ProbedBackend(raw={"/health": HANG})) as slow,
        begun(ControlParts(tmp_path, one_pool(good, slow))) as parts,
    ):
        assert parts.outlet.states == {"a": "serving", "b": "unknown"}


async def test_an_engine_that_is_restarted_on_its_port_is_ejected_and_serves_again_with_its_new_models(
    tmp_path: Path,
) -> None:
    fake = ProbedBackend(models=["old"])
    async with listening(fake):
        parts = ControlParts(tmp_path, one_pool(fake), probes={"health_s": 0.02})
        port = int(fake.url.rpartition(":")[2])
        await parts.loop.begin()
        assert parts.outlet.states == {"a": "serving"}
    fake.hang_up()
    await parts.outlet.until(lambda: parts.outlet.states == {"a": "ejected"})
    async with listening(ProbedBackend(models=["new"]), port=port):
        await parts.outlet.until(lambda: parts.outlet.states == {"a": "serving"})
        assert parts.outlet.snapshots[-1].backends[0].models == ("new",)
        await parts.close()
    reasons = [event["reason"] for event in parts.log.named("backend.state")]
    assert reasons[1].startswith("ejected: connection refused 3 times in ")
    assert reasons[2].startswith("serving again: /health answered 200 after ")
    assert [event["pool"] for event in parts.log.named("pool.down")] == ["p"]
    assert [event["pool"] for event in parts.log.named("pool.serving")] == ["p"]


async def test_a_model_that_no_backend_reports_is_told_once_and_told_when_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "MODELS_S", 0.0)
    async with listening(ProbedBackend(models=["m"])) as fake:
        named = pool("p", backend("a", url=fake.url), models=("m", "typo"))
        async with begun(ControlParts(tmp_path, named, **QUICK)) as parts:
            (event,) = parts.log.named("pool.models_missing")
            assert (event["pool"], event["missing"], event["reported"]) == ("p", ["typo"], ["m"])
            parts.loop.post(inbox.ConfigRead(runtime(named, limits={"in_flight": 7}, **QUICK)))
            fake.models = ["m", "typo"]
            await parts.outlet.until(lambda: parts.outlet.snapshots[-1].backends[0].models == ("m", "typo"))
            assert [it["pool"] for it in parts.log.named("pool.models_complete")] == ["p"]
            assert len(parts.log.named("pool.models_missing")) == 1


async def test_readings_go_to_all_workers_and_a_fallen_counter_has_the_models_read_again(tmp_path: Path) -> None:
    async with (
        listening(ProbedBackend(tokens=1000.0)) as fake,
        begun(ControlParts(tmp_path, one_pool(fake), **QUICK)) as parts,
    ):

        def pulses() -> list[float]:
            return [it.generation_tokens for _, it in parts.outlet.sent if isinstance(it, Pulse)]

        await parts.outlet.until(lambda: 1000.0 in pulses())
        fake.tokens, fake.models = 5.0, ["another"]
        await parts.outlet.until(lambda: parts.outlet.snapshots[-1].backends[0].models == ("another",))
        assert parts.log.named("backend.restarted")[0]["tokens_before"] == 1000.0


async def test_garbage_in_the_numbers_stops_the_pulses_and_nothing_else(tmp_path: Path) -> None:
    fake = ProbedBackend(raw={"/metrics": answer(body=b"\x00\xff{{{ not metrics\n" * 1000)})
    async with listening(fake), begun(ControlParts(tmp_path, one_pool(fake), **QUICK)) as parts:
        await fake.until(lambda: fake.asked["/metrics"] >= 5)
        assert parts.outlet.states == {"a": "serving"}
        assert not any(isinstance(it, Pulse) for _, it in parts.outlet.sent)
        assert len(parts.log.named("backend.reading")) == 1


async def test_what_was_told_of_a_backend_and_a_pool_leaves_with_them(tmp_path: Path) -> None:
    fake = ProbedBackend(models=["m"], raw={"/metrics": answer(body=b"no metrics")})
    async with listening(fake), listening(ProbedBackend(models=["o"])) as other:
        known, new = pool("p", backend("a", url=fake.url), models=("typo",)), pool("q", backend("b", url=other.url))
        async with begun(ControlParts(tmp_path, known, **QUICK)) as parts:
            for times in (1, 2):
                asked = fake.asked["/metrics"]
                await fake.until(lambda asked=asked: fake.asked["/metrics"] >= asked + 3)
                assert len(parts.log.named("backend.reading")) == times
                assert len(parts.log.named("pool.models_missing")) == times
                parts.loop.post(inbox.ConfigRead(runtime(new, **QUICK)))
                await parts.outlet.until(lambda: parts.outlet.states == {"b": "serving"})
                parts.loop.post(inbox.ConfigRead(runtime(known, **QUICK)))
                await parts.outlet.until(lambda: parts.outlet.states == {"a": "serving"})


async def test_failures_that_workers_report_eject_and_probe_at_once(tmp_path: Path) -> None:
    async with (
        listening(ProbedBackend()) as fake,
        listening(ProbedBackend()) as other,
        begun(ControlParts(tmp_path, one_pool(fake, other), probes={"health_s": 3600})) as parts,
    ):
        now = parts.clock()
        failures = [BackendFailure(backend="a", code="backend_died", at=now) for _ in range(5)]
        asked = fake.asked["/health"]
        parts.loop.worker_said(WORKER, Settled(slot=0, records=[], failures=failures))
        assert parts.outlet.states == {"a": "ejected", "b": "serving"}
        await fake.until(lambda: fake.asked["/health"] > asked)


async def test_settled_requests_reach_history_metrics_log_and_feed(tmp_path: Path) -> None:
    async with (
        listening(ProbedBackend(models=["kimi-k2.5"])) as fake,
        begun(ControlParts(tmp_path, one_pool(fake))) as parts,
    ):
        parts.loop.worker_said(WORKER, Settled(slot=0, records=[record_of("r1"), record_of("r2")]))
        assert [row.record.request_id for row in parts.history.stored] == ["r1", "r2"]
        assert [event["request_id"] for event in parts.log.named("request.settled")] == ["r1", "r2"]
        assert sum(item.name == "request.settled" for item in parts.bus.since(0)) == 2
        page = parts.metrics.text().decode()
        labels = 'backend="a",model="kimi-k2.5",profile="other"'
        assert f"pacekeeper_decode_tokens_per_second_count{{{labels}}} 2.0" in page


async def test_what_performing_brings_about_comes_after_what_is_being_performed(tmp_path: Path) -> None:
    async with listening(ProbedBackend()) as fake, begun(ControlParts(tmp_path, one_pool(fake))) as parts:
        order: list[str] = []

        def on_send(message: ControlMessage) -> None:
            order.append(type(message).__name__)
            if isinstance(message, NewSnapshot):
                parts.loop.worker_said(WORKER, beat())
                order.append("posted")

        parts.outlet.on_send = on_send
        parts.loop.worker_said(WORKER, HELLO)
        assert order == ["NewSnapshot", "posted", "Shares"]


async def test_shares_are_handed_out_while_the_loop_runs_and_again_only_when_they_change(tmp_path: Path) -> None:
    async with listening(ProbedBackend()) as fake, begun(ControlParts(tmp_path, one_pool(fake))) as parts:
        task = aio.spawn(parts.loop.run(), name="run")
        parts.loop.worker_said(WORKER, HELLO)
        parts.loop.worker_said(WORKER, beat())
        parts.loop.worker_said(WORKER, beat(share=8192))
        parts.loop.post(inbox.ConfigRead(runtime(one_pool(fake), limits={"in_flight": 100})))

        def limits() -> list[int]:
            return [it.in_flight_limit for _, it in parts.outlet.sent if isinstance(it, Shares)]

        await parts.outlet.until(lambda: 100 in limits())
        task.cancel()
        await asyncio.wait([task])
        assert limits() == [8192, 100]


async def test_a_new_configuration_ends_watches_begins_others_and_keeps_the_rest(tmp_path: Path) -> None:
    fakes = [ProbedBackend(models=[name]) for name in ("m", "n", "o")]
    async with (
        listening(fakes[0]) as a,
        listening(fakes[1]) as b,
        listening(fakes[2]) as c,
        begun(ControlParts(tmp_path, one_pool(a, b))) as parts,
    ):
        asked = a.asked.total()
        changed = pool("p", backend("a", url=a.url), backend("c", url=c.url))
        parts.loop.post(inbox.ConfigRead(runtime(changed)))
        assert parts.outlet.states == {"a": "serving", "c": "unknown"}
        await parts.outlet.until(lambda: parts.outlet.states == {"a": "serving", "c": "serving"})
        await b.until(lambda: b.connections == 0)
        assert a.asked.total() == asked, "the watch over a went on undisturbed"


async def test_another_time_limit_of_probes_begins_every_watch_anew(tmp_path: Path) -> None:
    async with listening(ProbedBackend()) as fake, begun(ControlParts(tmp_path, one_pool(fake))) as parts:
        asked = fake.asked["/health"]
        parts.loop.post(inbox.ConfigRead(runtime(one_pool(fake), probes={"timeout_s": 0.5})))
        await fake.until(lambda: fake.asked["/health"] > asked)
        assert parts.outlet.states == {"a": "serving"}


async def test_the_next_life_of_control_has_the_same_fleet_though_the_engine_is_too_busy_for_probes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "FIRST_ROUND_S", 0.1)
    async with listening(ProbedBackend(models=["m"])) as fake:
        async with begun(ControlParts(tmp_path, one_pool(fake))) as parts:
            before = parts.outlet.snapshots[-1]
        fake.raw = dict.fromkeys(("/health", "/v1/models", "/metrics"), HANG)
        async with begun(ControlParts(tmp_path, one_pool(fake))) as parts:
            after = parts.outlet.snapshots[-1]
    assert after.generation > before.generation
    assert after.cards == before.cards
    assert [(it.name, it.models, it.state.value) for it in after.backends] == [("a", ("m",), "unknown")]


async def test_a_keepsake_that_cannot_be_written_is_told_once_and_disturbs_nothing(tmp_path: Path) -> None:
    async with listening(ProbedBackend()) as fake, begun(ControlParts(tmp_path / "gone", one_pool(fake))) as parts:
        assert parts.outlet.states == {"a": "serving"}
        parts.loop.post(inbox.ConfigRead(runtime(one_pool(fake), timers={"stall_s": 5})))
        assert len(parts.outlet.snapshots) == 2
    assert len(parts.log.named("keepsake.problem")) == 1


async def test_a_defect_is_told_by_type_and_place_never_by_its_words(tmp_path: Path) -> None:
    parts = ControlParts(tmp_path, pool("p", "a"))
    parts.loop.failed("some task", ValueError("secret"))
    try:
        raise KeyError("secret")
    except KeyError as error:
        parts.loop.watch_failed("a", error)
    first, second = parts.log.named("task.failed")
    assert (first["task"], first["error"], first["place"]) == ("some task", "ValueError", "")
    assert (second["task"], second["error"]) == ("watch a", "KeyError")
    assert "test_control_loop.py:" in second["place"]
    assert "secret" not in str(parts.log.events)


async def test_without_an_outlet_and_for_unknown_backends_nothing_goes_wrong(tmp_path: Path) -> None:
    async with listening(ProbedBackend()) as fake:
        parts = ControlParts(tmp_path, one_pool(fake))
        parts.loop.outlet = None
        async with begun(parts):
            parts.loop.worker_said(WORKER, HELLO)
            parts.loop._hurry("ghost", inbox.ProbeNow("ghost"))
            parts.loop.worker_left(WORKER)
    assert len(parts.log.named("worker.gone")) == 1
