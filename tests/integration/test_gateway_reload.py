"""The whole gateway under load while its configuration changes: backends come, go and are replaced."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.fakes.gateway_load import Load
from tests.fakes.gateway_process import GatewayProcess, gateway
from tests.fakes.paced_engine import answered_once, engines

pytestmark = pytest.mark.asyncio


async def reload(running: GatewayProcess, backends: Mapping[str, str], *, change: str) -> None:
    """Write the file, send SIGHUP, wait until control says what ``change`` came of it."""
    after = running.now
    running.configure(backends)
    running.signal(signal.SIGHUP)
    await running.event("config.loaded", after=after, changes=change)
    await running.event("supervisor.announced", after=after, notice="ready")


async def test_backends_come_and_go_under_load_and_no_request_is_lost(tmp_path: Path) -> None:
    async with engines(3) as (a, b, c), gateway(tmp_path, {"a": a.backend.url}, workers=2) as running:
        urls = {"a": a.backend.url, "b": b.backend.url, "c": c.backend.url}
        async with Load(running.clients) as load:
            await load.streaming(10)
            await reload(running, {name: urls[name] for name in "ab"}, change="backend b: added to pool main")
            await load.until(lambda: len(b.answered) > 10)

            await reload(running, {"b": urls["b"]}, change="backend a: removed; answers that are open go on")
            await load.more(20)
            by_a = len(a.answered)
            await load.more(20)
            assert len(a.answered) == by_a

            await reload(running, {"c": urls["c"]}, change="backend c: added")  # all at once: nobody was probed yet
            await load.more(20)
            await load.finish()
        assert load.unserved == []
        assert answered_once(a, b, c)
        assert set(await running.states()) == {"c"}
        assert set(running.workers().values()) == {event["pid"] for event in running.events("worker.joined")}


async def test_a_bad_file_changes_nothing_and_is_told(tmp_path: Path) -> None:
    async with engines(1) as (a,), gateway(tmp_path, {"a": a.backend.url}) as running:
        async with Load(running.clients) as load:
            await load.streaming(10)
            fleet = await running.states()
            for text, told in (
                (
                    "pools: [{name: main, backends: [{name: a, urll: 'http://h:1'}]}]\n",
                    'urll: unknown key; did you mean "url"',
                ),
                ("pools: [", "gateway.yaml:"),
                ("pools: []\n", "pools: needs at least one entry"),
            ):
                after = running.now
                running.config.write_text(text)
                running.signal(signal.SIGHUP)
                refused = await running.event("config.refused", after=after, faults=told)
                assert refused["level"] == "error"
                assert all(fault.startswith(f"{running.config}:") for fault in refused["faults"])
                await load.more(5)
                assert await running.states() == fleet
            running.config.unlink()
            after = running.now
            running.signal(signal.SIGHUP)
            await running.event("config.refused", after=after, faults="gateway.yaml")
            running.send("control")  # the next one knows what was applied, whatever the file says now
            await running.event("supervisor.decided", after=after, reason="control is ready")
            await load.more(5)
            assert await running.states() == fleet
            await load.finish()
        assert load.unserved == []


@pytest.mark.parametrize("moment", ["away", "starting"])
async def test_a_reload_that_finds_no_control_is_not_lost(tmp_path: Path, moment: str) -> None:
    async with engines(2) as (a, b), gateway(tmp_path, {"a": a.backend.url}) as running:
        after = running.now
        running.send("control")
        if moment == "starting":
            await running.event("supervisor.started", after=after, child="control")
        running.configure({"b": b.backend.url})
        running.signal(signal.SIGHUP)
        await running.event("config.loaded", after=after, changes="backend a: removed")
        await running.event("supervisor.announced", after=after, notice="ready")
        await running.until(lambda: only_b(running), "the new file is in use")


async def test_a_changed_install_setting_is_named_and_waits_for_a_restart(tmp_path: Path) -> None:
    async with engines(1) as (a,), gateway(tmp_path, {"a": a.backend.url}) as running:
        after = running.now
        running.configure({"a": a.backend.url}, workers=2, limits={"in_flight": 3})
        running.signal(signal.SIGHUP)
        loaded = await running.event("config.loaded", after=after)
        assert loaded["needs_restart"] == ["workers: 1 → 2"]
        assert [change for change in loaded["changes"] if "in_flight" in change]
        assert list(running.workers()) == ["worker 0"]


async def test_many_reloads_in_a_row_end_in_the_last_one(tmp_path: Path) -> None:
    async with engines(2) as (a, b), gateway(tmp_path, {"a": a.backend.url}) as running:
        urls = {"a": a.backend.url, "b": b.backend.url}
        async with Load(running.clients) as load:
            await load.streaming(10)
            for at in range(10):
                running.configure({name: urls[name] for name in ("ab", "b", "a", "ba")[at % 4]})
                running.signal(signal.SIGHUP)
                await asyncio.sleep(0.02)  # some fall into the time in which the one before is being read
            await reload(running, {"b": urls["b"]}, change="")
            await running.until(lambda: only_b(running), "the last file is in use")
            await load.more(10)
            await load.finish()
        assert load.unserved == []


async def only_b(running: GatewayProcess) -> bool:
    return {name: state for name, (state, _) in (await running.states()).items()} == {"b": "serving"}
