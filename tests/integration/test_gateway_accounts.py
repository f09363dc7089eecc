"""The whole gateway's books against what clients saw: counters, log and history; and what stands in none of them."""

from __future__ import annotations

import asyncio
import json
import signal
import stat
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.gateway_load import Asked, Load, ask, leave_midway
from tests.fakes.gateway_process import GatewayProcess, connection, gateway
from tests.fakes.paced_engine import LEAK, SECRETS, Fault, answered_once, engines

pytestmark = pytest.mark.asyncio

LONG = 400
TIMERS = {"stall_s": 0.4, "pulse_fresh_s": 5.0}


def expected_outcome(asked: Asked) -> str:
    """The outcome that goes with what the client saw."""
    if asked.failure == "left":
        return "client_gone"
    if asked.served:
        return "ok"
    match asked.fault, asked.answer.status:
        case Fault.STALLS, _:
            return "upstream_timeout"
        case ((Fault.DIES | Fault.BREAKS | Fault.ABORTS), _):
            return "upstream_error"
        case _, (400 | 404 | 429):
            return "rejected"
        case _:
            return asked.failure or asked.code


def request_of(name: str, at: int, **more: Any) -> Asked:
    return Asked(f"{name}-{at}", stream=True, tokens=8, began=asyncio.get_running_loop().time(), **more)


async def mixed(running: GatewayProcess) -> list[Asked]:
    """A few of every kind of ending, all at the same time."""
    async with asyncio.TaskGroup() as asking:
        tasks = [
            asking.create_task(ask(running.clients, request_of(fault, at, fault=fault)))
            for fault in Fault
            for at in range(3)
        ]
        tasks += [asking.create_task(leave_midway(running.clients, request_of("left", at))) for at in range(4)]
    return [task.result() for task in tasks]


async def refused_by_the_gateway(running: GatewayProcess) -> list[Asked]:
    """Requests that no engine hears of."""
    found = []
    for at, (path, body) in enumerate(
        [
            ("/v1/chat/completions", f'{{"model": "tiny", "messages": "{SECRETS["prompt"]}'.encode()),
            ("/v1/chat/completions", f'{{"model": "gone", "messages": "{SECRETS["prompt"]}"}}'.encode()),
            ("/v1/completions", f'["{SECRETS["prompt"]}"]'.encode()),
        ]
    ):
        asked = request_of("refused", at)
        async with connection(running.clients) as client:
            await client.post(body, path=path, headers={"X-Request-Id": asked.request_id})
            asked.answer = await client.answer()
        found.append(asked)
    return found


def by_id(records: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Outcome of each request; no request may be there twice."""
    pairs = [(record["request_id"], record["outcome"]) for record in records]
    assert len(pairs) == len(dict(pairs))
    return dict(pairs)


async def counted(running: GatewayProcess) -> Counter[str]:
    """Requests by outcome, from ``/metrics``."""
    samples = [it for it in await running.metrics() if it.name == "pacekeeper_requests_total"]
    found: Counter[str] = Counter()
    for sample in samples:
        found[sample.labels["outcome"]] += int(sample.value)
    return found


async def test_counters_log_and_history_agree_with_what_clients_saw(tmp_path: Path) -> None:
    clients = {"drain_s": 0.3}
    async with (
        engines(2) as (a, b),
        gateway(
            tmp_path, {"a": a.backend.url, "b": b.backend.url}, timers=TIMERS, clients=clients, workers=2
        ) as running,
    ):
        async with Load(running.clients) as load:
            await load.streaming(8)
            asked = await mixed(running)
            await load.more(20)
            await load.finish()
        asked += load.asked + await refused_by_the_gateway(running)
        seen = {it.request_id: expected_outcome(it) for it in asked}
        assert set(seen.values()) == {
            "ok",
            "client_gone",
            "upstream_error",
            "upstream_timeout",
            "rejected",
        }

        async def whole() -> bool:
            return sum((await counted(running)).values()) >= len(seen) <= len(await running.history())

        await running.until(whole, "every request is counted and in the history")
        assert by_id(await running.history()) == seen
        assert await counted(running) == Counter(seen.values())
        assert await running.total("pacekeeper_records_total") == len(seen)
        assert await running.total("pacekeeper_in_flight") == 0
        assert (await running.admin("/admin/v1/status"))["outcomes"] == Counter(seen.values())
        tokens = sum(it.tokens for it in asked if it.served)
        assert await running.total("pacekeeper_tokens_total", kind="content") >= tokens
        assert not LEAK.search((await running.get("/metrics")).body)

        left = [Asked(f"open-{at}", stream=True, tokens=LONG, began=0.0) for at in range(3)]
        async with asyncio.TaskGroup() as asking:
            for it in left:
                asking.create_task(ask(running.clients, it))
            await running.until(lambda: all(it.head_at for it in left), "streams have begun")
            running.signal(signal.SIGTERM)
        assert await running.exit() == 0
        seen |= {it.request_id: "shutdown" for it in left}
        assert by_id(running.events("request.settled")) == seen
        assert answered_once(a, b)


async def test_what_the_gateway_writes_is_for_its_owner_alone(tmp_path: Path) -> None:
    async with engines(1) as (a,), gateway(tmp_path, {"a": a.backend.url}) as running:
        async with Load(running.clients, streams=2, tokens=(2, 4)) as load:
            await load.more(3)
            await load.finish()
        assert running.leaks() == []
        token = (running.runtime_dir / "admin.token").read_text().strip()
        pages = [await running.get(path) for path in ("/metrics", "/admin/v1/status", "/admin/v1/backends")]
        assert all(page.status == 200 and token.encode() not in page.body for page in pages)
        assert not any(LEAK.search(page.body) for page in pages)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in running.runtime_dir.iterdir()}
        assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}
        assert json.loads((running.runtime_dir / "install.json").read_text())["workers"] == 1
