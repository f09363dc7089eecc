"""The whole gateway under load while a worker is killed or stands still."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fakes.gateway_load import Asked, Load, ask
from tests.fakes.gateway_process import GatewayProcess, gateway
from tests.fakes.paced_engine import answered_once, engines

pytestmark = pytest.mark.asyncio

BACK_S = 3.0  # a second by contract, on a machine that has nothing else to do
STUCK_S = 15.0  # silence is noticed after 10 s


async def served_after(running: GatewayProcess, name: str) -> float:
    """A request that is opened right after a worker was killed, and nothing else: the time until it was served."""
    loop = asyncio.get_running_loop()
    killed_at = loop.time()
    running.send(name)
    asked = await ask(running.clients, Asked(f"after-{name}", stream=False, tokens=1, began=killed_at))
    assert asked.served, asked
    return loop.time() - killed_at


def cut(asked: Asked) -> bool:
    """Whether the connection ended under the answer, and nothing pretends otherwise."""
    return asked.failure in {"reset", "eof"} and not asked.answer.whole and b"[DONE]" not in asked.answer.body


async def test_the_only_worker_killed_is_back_in_a_moment_and_its_connections_wait(tmp_path: Path) -> None:
    async with engines(1) as (a,), gateway(tmp_path, {"a": a.backend.url}) as running:
        quiet_s = await served_after(running, "worker 0")
        await running.event("supervisor.decided", reason="worker 0 is ready after")
        async with Load(running.clients) as load:
            await load.streaming(8)
            children, after = running.children(), running.now
            on_it = list(load.open_streams)
            killed_at = asyncio.get_running_loop().time()
            running.send("worker 0")
            busy_s = await load.served_since(killed_at) - killed_at
            await load.more(10)
            await load.finish()
            now = running.children()
        print(f"served {quiet_s:.2f} s after the kill with nothing else to do, {busy_s:.2f} s under load")  # noqa: T201
        assert max(quiet_s, busy_s) < BACK_S
        assert all(cut(asked) for asked in on_it)
        assert all(cut(asked) and asked.began < killed_at for asked in load.unserved), load.unserved
        assert now["control"] == children["control"]
        assert now["worker 0"] != children["worker 0"]
        assert running.events("supervisor.decided", after=after, reason="worker 0 ended with signal 9")
        assert answered_once(a)


async def test_one_of_two_workers_killed_takes_only_its_own_connections_with_it(tmp_path: Path) -> None:
    async with engines(2) as (a, b), gateway(tmp_path, {"a": a.backend.url, "b": b.backend.url}, workers=2) as running:
        async with Load(running.clients, streams=16) as load:
            await load.streaming(12)
            before = running.workers()
            holders = held_by(running, load.open)
            killed_at = asyncio.get_running_loop().time()
            running.send("worker 1")
            on_it = [asked for asked in load.open_streams if holders.get(asked.port) == "worker 1"]
            others = [asked for asked in load.open_streams if holders.get(asked.port) == "worker 0"]
            await running.event("supervisor.decided", reason="worker 1 is ready after")
            await load.more(20)
            await load.finish()
        assert on_it
        assert others
        assert all(cut(asked) for asked in on_it)
        assert all(asked.served for asked in others)
        assert all(holders.get(asked.port, "worker 1") == "worker 1" for asked in load.unserved)
        assert all(cut(asked) and asked.began <= killed_at for asked in load.unserved), load.unserved
        assert running.workers()["worker 0"] == before["worker 0"]
        assert answered_once(a, b)


async def test_a_worker_that_stands_still_is_replaced_and_its_connections_are_served(tmp_path: Path) -> None:
    async with engines(1) as (a,), gateway(tmp_path, {"a": a.backend.url}, workers=2) as running:
        loop = asyncio.get_running_loop()
        async with Load(running.clients, streams=8, tokens=(15, 25)) as load:
            await load.streaming(6)
            before, after = running.workers(), running.now
            holders = held_by(running, load.open)
            stuck = holders[load.open_streams[0].port]
            stopped_at = loop.time()
            running.send(stuck, signal.SIGSTOP)
            await running.event("supervisor.decided", after=after, reason=f"{stuck} was silent for .* s: killed")
            await running.event("supervisor.decided", after=after, reason=f"{stuck} is ready after")
            replaced_s = loop.time() - stopped_at
            await load.more(10)
            await load.finish()
        print(f"a worker that stood still was replaced after {replaced_s:.1f} s")  # noqa: T201
        assert replaced_s < STUCK_S
        assert {name for name, pid in running.workers().items() if pid != before[name]} == {stuck}
        other = next(name for name in before if name != stuck)
        assert all(holders.get(asked.port) != other for asked in load.unserved)
        assert all(cut(asked) and asked.began < stopped_at + replaced_s for asked in load.unserved), load.unserved
        assert len(load.unserved) < len(load.asked) / 2


def held_by(running: GatewayProcess, asked: list[Asked]) -> dict[int, str]:
    """Which worker holds the other end of each client's connection, by the client's port; unaccepted ones by none."""
    gateway_end = f":{int(running.clients.rpartition(':')[2]):04X}"
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    client_port = {row[9]: int(row[2].rpartition(":")[2], 16) for row in rows if row[1].endswith(gateway_end)}
    wanted = {it.port for it in asked}
    found = {}
    for name, pid in running.workers().items():
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                inode = str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]")
                if client_port.get(inode) in wanted:
                    found[client_port[inode]] = name
    return found
