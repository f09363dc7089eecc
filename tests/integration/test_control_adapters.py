"""Control and LoRA adapters, with engines on real sockets: what is asked of whom, when, and what is made of answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway import aio
from gateway.control import adapter_calls, inbox
from gateway.control.adapters import AdapterDesk
from gateway.core.routing.adapters import (
    KEY_REFUSED,
    NOT_REPORTED,
    OWN_MODEL,
    STILL_REPORTED,
    AdapterOutcome,
    AdapterResult,
)
from gateway.errors import NotFound
from tests.fakes.backend import End, Script, answer
from tests.fakes.control_parts import ControlParts
from tests.fakes.fleets import backend, pool, runtime
from tests.fakes.lora_engine import LOAD, UNLOAD, LoraEngine, lora_engines

pytestmark = pytest.mark.asyncio

POET = {"name": "poet", "path": "/adapters/poet"}
PATIENCE_S = 20.0


class Bench:
    """Control with one pool ``p`` before engines a, b, c; ``desk`` does what operators ask."""

    def __init__(self, parts: ControlParts) -> None:
        self.parts = parts
        self.desk = AdapterDesk(parts.loop, parts.loop.tools, orders=parts.keepsake.adapters())

    async def until(self, holds: Callable[[], object], what: str) -> None:
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while True:
            if holds():
                return
            if asyncio.get_running_loop().time() > deadline:
                raise AssertionError(f"not in {PATIENCE_S:g} s: {what}")
            await asyncio.sleep(0.02)

    def seen(self) -> dict[str, tuple[str, ...]]:
        """Models of each backend as workers know them."""
        return {view.name: view.models for view in self.parts.outlet.snapshots[-1].backends}


def configured(urls: dict[str, str], **more: Any) -> Any:
    given = {"lora": [POET]} | more
    return pool("p", *(backend(name, url=url, api_key_env="KEY") for name, url in urls.items()), **given)


@asynccontextmanager
async def bench(folder: Path, *engines: LoraEngine, look: bool = False, **more: Any) -> AsyncIterator[Bench]:
    """``look``: what is lacking is looked after; else nothing happens but what a test orders."""
    async with lora_engines(*engines) as urls:
        probes = {"health_s": 0.5, "timeout_s": 5}
        parts = ControlParts(folder, configured(urls, **more), environ={"KEY": "k3y"}, probes=probes)
        made = Bench(parts)
        looking = aio.spawn(made.desk.run(), name="adapters") if look else None
        try:
            await parts.loop.begin()
            await parts.outlet.until(lambda: set(parts.outlet.states.values()) == {"serving"}, timeout_s=PATIENCE_S)
            yield made
        finally:
            if looking is not None:
                looking.cancel()
                await asyncio.wait([looking])
            await parts.close()


def results(outcome: AdapterOutcome) -> dict[str, str]:
    return {it.backend: it.result.value for it in outcome.backends}


def detail(outcome: AdapterOutcome, name: str = "a") -> str:
    return next(it.detail for it in outcome.backends if it.backend == name)


async def test_what_was_ordered_is_known_to_workers_when_the_order_is_answered(tmp_path: Path) -> None:
    one, two = LoraEngine(), LoraEngine()
    async with bench(tmp_path, one, two) as made:
        outcome = await made.desk.load("p", "poet", reload=False)
        assert (outcome.complete, results(outcome)) == (True, {"a": "loaded", "b": "loaded"})
        assert made.seen() == {"a": ("tiny", "poet"), "b": ("tiny", "poet")}
        assert one.keys == ["Bearer k3y"]
        assert made.parts.keepsake.adapters() == {"p": {"poet": True}}
        assert (await made.desk.unload("p", "poet")).complete
        assert made.seen() == {"a": ("tiny",), "b": ("tiny",)}
        assert made.parts.keepsake.adapters() == {"p": {"poet": False}}


async def test_clients_lose_an_adapter_before_its_engines_do(tmp_path: Path) -> None:
    engine = LoraEngine()
    async with bench(tmp_path, engine) as made:
        await made.desk.load("p", "poet", reload=False)
        seen: list[dict[str, tuple[str, ...]]] = []
        release = asyncio.Event()
        engine.backend.add(Script((release, answer(b"Success"))))
        unloading = aio.spawn(made.desk.unload("p", "poet"), name="unload")
        exchange = await engine.backend.exchange(1)
        assert exchange.request.target == UNLOAD
        seen.append(made.seen())
        engine.loaded.clear()
        engine.report()
        release.set()
        assert (await unloading).complete
        assert seen == [{"a": ("tiny",)}]


async def test_one_from_elsewhere_is_replaced_and_a_reload_replaces_all_one_backend_after_the_other(
    tmp_path: Path,
) -> None:
    elsewhere, same = LoraEngine(loaded={"poet": "/old"}), LoraEngine(loaded={"poet": POET["path"]})
    async with bench(tmp_path, elsewhere, same) as made:
        outcome = await made.desk.load("p", "poet", reload=False)
        assert results(outcome) == {"a": "reloaded", "b": "already_loaded"}
        load = {"lora_name": "poet", "lora_path": POET["path"]}
        assert elsewhere.orders == [(UNLOAD, {"lora_name": "poet"}), (LOAD, load)], "and nothing is loaded in place"
        assert same.orders == []

        release = asyncio.Event()
        elsewhere.backend.add(Script((release, answer(b"Success"))))
        reloading = aio.spawn(made.desk.load("p", "poet", reload=True), name="reload")
        assert (await elsewhere.backend.exchange(2)).request.target == UNLOAD
        assert made.seen() == {"a": ("tiny",), "b": ("tiny", "poet")}, "meanwhile the other one serves it"
        assert same.orders == []
        elsewhere.loaded.clear()
        elsewhere.report()
        release.set()
        assert results(await reloading) == {"a": "reloaded", "b": "reloaded"}
        assert same.orders == [(UNLOAD, {"lora_name": "poet"}), (LOAD, load)]
        assert made.seen() == {"a": ("tiny", "poet"), "b": ("tiny", "poet")}


async def test_a_reload_that_fails_leaves_the_other_backends_what_they_have(tmp_path: Path) -> None:
    engines = [LoraEngine(loaded={"poet": POET["path"]}) for _ in range(3)]
    async with bench(tmp_path, *engines, look=True, lora=[{**POET, "load": True}]) as made:
        engines[0].refusal = "bad weights"
        outcome = await made.desk.load("p", "poet", reload=True)
        assert results(outcome) == {"a": "refused", "b": "not_asked", "c": "not_asked"}
        assert detail(outcome, "b") == "it keeps what it has, since a did not take it"
        assert made.seen() == {"a": ("tiny",), "b": ("tiny", "poet"), "c": ("tiny", "poet")}
        engines[0].refusal = ""
        await made.until(lambda: made.seen()["a"] == ("tiny", "poet"), "it is asked again")
        assert (engines[1].orders, engines[2].orders) == ([], [])


async def test_a_new_path_that_is_bad_is_tried_at_one_backend_only(tmp_path: Path) -> None:
    engines = [LoraEngine(loaded={"poet": POET["path"]}) for _ in range(3)]
    async with bench(tmp_path, *engines, look=True, lora=[{**POET, "load": True}]) as made:
        for engine in engines:
            engine.refusal = "no such adapter"
        urls = {name: engine.backend.url for name, engine in zip("abc", engines, strict=True)}
        moved = configured(urls, lora=[{"name": "poet", "path": "/new", "load": True}])
        made.parts.loop.post(inbox.ConfigRead(runtime(moved, probes={"health_s": 0.5, "timeout_s": 5})))
        await made.until(lambda: sum(len(engine.loads) for engine in engines) >= 2, "one was asked twice")
        assert sorted(len(engine.loaded) for engine in engines) == [0, 1, 1], "the others serve what they have"
        for engine in engines:
            engine.refusal = ""
        await made.until(lambda: all(it.loaded == {"poet": "/new"} for it in engines), "all have it in the end")


async def test_unloading_what_is_not_there_asks_nobody_for_anything(tmp_path: Path) -> None:
    engine = LoraEngine(updates=False)
    async with bench(tmp_path, engine) as made:
        outcome = await made.desk.unload("p", "poet")
        assert (outcome.complete, results(outcome)) == (True, {"a": "not_loaded"})
        assert engine.orders == []


@pytest.mark.parametrize("target, wanted", [(LOAD, True), (UNLOAD, False)])
async def test_a_200_alone_is_not_believed(tmp_path: Path, target: str, *, wanted: bool) -> None:
    engine = LoraEngine(loaded={} if wanted else {"poet": POET["path"]})
    async with bench(tmp_path, engine) as made:
        engine.backend.add(Script((answer(b"Success"),)))
        outcome = await (made.desk.load("p", "poet", reload=False) if wanted else made.desk.unload("p", "poet"))
        assert (await engine.backend.exchange(0)).request.target == target
        assert results(outcome) == {"a": "refused"}
        assert detail(outcome) == (NOT_REPORTED if wanted else STILL_REPORTED)


async def test_one_that_was_loaded_by_an_earlier_call_that_was_late_is_loaded(tmp_path: Path) -> None:
    engine = LoraEngine()
    async with bench(tmp_path, engine) as made:
        release = asyncio.Event()
        already = answer(b'{"error":{"message":"The lora adapter has already been loaded."}}', status=400)
        engine.backend.add(Script((release, already)))
        loading = aio.spawn(made.desk.load("p", "poet", reload=False), name="load")
        await engine.backend.exchange(0)
        engine.loaded["poet"] = POET["path"]
        engine.report()
        release.set()
        assert results(await loading) == {"a": "already_loaded"}
        assert made.seen() == {"a": ("tiny", "poet")}


async def test_every_way_of_not_doing_it_is_told_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter_calls, "LOAD_S", 0.3)
    engine = LoraEngine()
    async with bench(tmp_path, engine) as made:
        scripts: list[tuple[Script, AdapterResult, str]] = [
            (Script((answer(b'{"detail":"Not Found"}', status=404),)), AdapterResult.REFUSED, "VLLM_ALLOW_RUNTIME"),
            (Script((answer(b'{"error":"Unauthorized"}', status=401),)), AdapterResult.REFUSED, "api_key_env"),
            (Script((answer(b"oops", status=500),)), AdapterResult.REFUSED, "it answered 500"),
            (Script((), End.HANG), AdapterResult.UNREACHABLE, "no answer in 0.3 s"),
            (Script((), End.RESET), AdapterResult.UNREACHABLE, "closed without an answer"),
            (Script((b"garbage\r\n\r\n",), End.CLOSE), AdapterResult.UNREACHABLE, "not HTTP"),
            (Script((answer(b"x" * 70_000),)), AdapterResult.UNREACHABLE, "over 65536 bytes"),
        ]
        for script, result, words in scripts:
            engine.backend.add(script)
            outcome = await made.desk.load("p", "poet", reload=False)
            assert outcome.backends[0].result is result
            assert words in detail(outcome), words
            assert words in outcome.summary
        engine.backend.fixed["/v1/models"] = answer(b'{"error":"Unauthorized"}', status=401)
        assert detail(await made.desk.load("p", "poet", reload=False)) == KEY_REFUSED
        engine.backend.fixed["/v1/models"] = answer(b"[]")
        assert "not a list of models" in detail(await made.desk.load("p", "poet", reload=False))
        await engine.backend.stop()
        engine.backend.drop_connections()
        outcome = await made.desk.load("p", "poet", reload=False)
        assert (results(outcome), detail(outcome)) == ({"a": "unreachable"}, "connection refused")


async def test_a_newer_order_overtakes_one_that_waits_for_its_turn(tmp_path: Path) -> None:
    engine = LoraEngine()
    async with bench(tmp_path, engine, lora=[POET, {"name": "other", "path": "/o"}]) as made:
        release = asyncio.Event()
        engine.backend.add(Script((release, answer(b"Success"))))
        first = aio.spawn(made.desk.load("p", "other", reload=False), name="first")
        await engine.backend.exchange(0)  # the backend is busy with it
        second = aio.spawn(made.desk.load("p", "poet", reload=False), name="second")
        await made.until(lambda: made.parts.keepsake.adapters().get("p", {}).get("poet"), "the second order is known")
        third = aio.spawn(made.desk.unload("p", "poet"), name="third")
        await made.until(lambda: made.parts.keepsake.adapters()["p"]["poet"] is False, "the third order is known, too")
        release.set()
        assert results(await first) == {"a": "refused"}  # it said so and did nothing
        assert results(await second) == {"a": "superseded"}
        assert results(await third) == {"a": "not_loaded"}
        assert engine.loads == []


async def test_only_so_many_backends_are_asked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.control.adapters.AT_ONCE", 2)
    engines = [LoraEngine() for _ in range(4)]
    async with bench(tmp_path, *engines) as made:
        release = asyncio.Event()
        for engine in engines:
            engine.backend.add(Script((release, answer(b"Success"))))
        loading = aio.spawn(made.desk.load("p", "poet", reload=False), name="load")
        await made.until(lambda: sum(len(it.backend.exchanges) for it in engines) == 2, "two are asked")
        for _ in range(50):
            await asyncio.sleep(0)
        assert sum(len(it.backend.exchanges) for it in engines) == 2
        release.set()
        await loading
        assert [len(it.backend.exchanges) for it in engines] == [1, 1, 1, 1]


async def test_one_that_is_wanted_from_the_start_is_loaded_without_an_order(tmp_path: Path) -> None:
    engine = LoraEngine()
    async with bench(tmp_path, engine, look=True, lora=[{**POET, "load": True}]) as made:
        await made.until(lambda: made.seen() == {"a": ("tiny", "poet")}, "it is served")
        (told,) = made.parts.log.named("adapter.loaded")
        assert (told["backend"], told["pool"], told["adapter"], told["result"]) == ("a", "p", "poet", "loaded")


async def test_another_path_in_the_configuration_is_loaded_over_the_old_one(tmp_path: Path) -> None:
    engine = LoraEngine()
    async with bench(tmp_path, engine, look=True) as made:
        await made.desk.load("p", "poet", reload=False)
        moved = configured({"a": engine.backend.url}, lora=[{"name": "poet", "path": "/new"}])
        made.parts.loop.post(inbox.ConfigRead(runtime(moved, probes={"health_s": 0.5, "timeout_s": 5})))
        await made.until(lambda: engine.loaded == {"poet": "/new"}, "it is reloaded")
        gone = configured({"a": engine.backend.url}, lora=[])
        made.parts.loop.post(inbox.ConfigRead(runtime(gone, probes={"health_s": 0.5, "timeout_s": 5})))
        await made.until(lambda: made.parts.keepsake.adapters() == {}, "what is not configured is not ordered")


async def test_a_refusal_is_told_once_however_often_it_is_asked_again(tmp_path: Path) -> None:
    engine = LoraEngine(refusal="LoRA rank 32 is greater than max_lora_rank 16.")
    async with bench(tmp_path, engine, look=True, lora=[{**POET, "load": True}]) as made:
        await made.until(lambda: len(engine.loads) >= 2, "it is asked again")
        await made.until(lambda: made.desk.reports()[0].backends[0].retry_in_s, "it is to be asked once more")
        (told,) = made.parts.log.named("adapter.failed")
        assert (told["wanted"], told["reason"]) == (True, engine.refusal.rstrip("."))
        (report,) = made.desk.reports()
        assert (report.wanted, report.backends[0].loaded, report.backends[0].detail) == (True, False, told["reason"])


async def test_what_nobody_configured_is_not_found(tmp_path: Path) -> None:
    engine = LoraEngine()
    async with bench(tmp_path, engine) as made:
        with pytest.raises(NotFound, match="no pool q"):
            await made.desk.load("q", "poet", reload=False)
        with pytest.raises(NotFound, match=r"pools\[\]\.lora"):
            await made.desk.unload("p", "stranger")
        assert (made.parts.keepsake.adapters(), engine.orders) == ({}, [])


@pytest.mark.parametrize("path", ["/adapters/poet", "./tiny-model"])
async def test_an_adapter_that_is_named_as_the_backends_own_model_is_refused_and_the_model_stays(
    tmp_path: Path, path: str
) -> None:
    engine = LoraEngine()
    async with bench(tmp_path, engine, lora=[{"name": "tiny", "path": path}]) as made:
        assert made.seen() == {"a": ("tiny",)}, "although nobody wants an adapter of this name"
        outcome = await made.desk.load("p", "tiny", reload=True)
        assert (results(outcome), detail(outcome)) == ({"a": "refused"}, OWN_MODEL)
        assert results(await made.desk.unload("p", "tiny")) == {"a": "not_loaded"}
        assert all(shot.backends[0].models in {(), ("tiny",)} for shot in made.parts.outlet.snapshots)
        assert made.seen() == {"a": ("tiny",)}
        assert engine.orders == []
