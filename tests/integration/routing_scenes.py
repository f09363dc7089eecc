"""Scenes that show what the settings of routing and quarantine change; tried in ``test_every_setting.py``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

from gateway.control.lessons import Lessons
from gateway.core.link.messages import BackendFailure, NewSnapshot, Quarantine
from gateway.core.request.body import parse_body
from gateway.core.routing.evidence import RequestFailed
from gateway.core.stream.summary import Dialect
from gateway.fleet import Fleet
from tests.fakes.fleets import GOOD, REFUSED, cards
from tests.fakes.setting_stage import Stage
from tests.fakes.worker import running_worker

URLS = tuple(f"http://127.0.0.1:{port}" for port in (8001, 8002, 8003, 8004))


async def kinds_of_choice(stage: Stage) -> object:
    """How twenty requests of one session are spread over two backends, one after the other."""
    async with running_worker() as worker:
        worker.desk.apply(NewSnapshot(snapshot=stage.snapshot(*URLS[:2])))
        body = parse_body(b'{"model":"tiny","messages":[]}', Dialect.CHAT)
        session = worker.desk.balance.session_of("main", body, "s")
        got = Counter[str]()
        for _ in range(20):
            with worker.desk.lease(pool="main", model="tiny", tried=(), session=session) as lease:
                got[lease.backend.name] += 1
        return sorted(got.values())


async def sessions_of_two_prompts(stage: Stage) -> object:
    """Whether two prompts that differ from their 50th byte on are of one session."""
    async with running_worker() as worker:
        worker.desk.apply(NewSnapshot(snapshot=stage.snapshot(*URLS[:2])))
        found = set()
        for end in ("one", "two"):
            text = f'{{"model":"tiny","messages":[{{"role":"user","content":"{"x" * 40}{end}"}}]}}'
            found.add(worker.desk.balance.session_of("main", parse_body(text.encode(), Dialect.CHAT), None))
        return len(found), None in found


async def weight_of_a_new_one(stage: Stage) -> object:
    """How many of forty requests a backend has that came back five seconds ago."""
    fleet = Fleet(stage.settings(*URLS[:2]).runtime, generation=0, now=0.0)
    async with running_worker() as worker:
        now = worker.desk._clock()
        for name in "ab":
            fleet.discovered(name, cards("tiny"), version="1")
            fleet.notice(name, GOOD, now=now - 60.0)
        for _ in range(3):
            fleet.notice("b", REFUSED, now=now - 50.0)
        fleet.notice("b", GOOD, now=now - 5.0)
        worker.desk.apply(NewSnapshot(snapshot=fleet.snapshot()))
        for _ in range(40):
            worker.desk.lease(pool="main", model="tiny", tried=()).__enter__()
        part = worker.desk.in_flight["b"]
        return "half" if part == 20 else "little" if part < 8 else "less"


async def ejected_of_four(stage: Stage) -> object:
    """How many of four backends are ejected when the requests of all fail."""
    fleet = Fleet(stage.settings(*URLS).runtime, generation=0, now=0.0)
    for name in "abcd":
        fleet.notice(name, GOOD, now=1.0)
    for name in "abcd" * 5:
        fleet.notice(name, RequestFailed(code="backend_died", at=2.0), now=2.0)
    return sum(view.state.value == "ejected" for view in fleet.snapshot().backends)


def _quarantined(stage: Stage, deaths: int) -> Quarantine:
    """What workers are told of a request after so many deaths."""
    lessons = Lessons(stage.settings(*URLS).runtime)
    for at, name in enumerate("abcd"[:deaths]):
        died = BackendFailure(backend=name, code="engine_dead", at=100.0 * at, fingerprint="f")
        list(lessons.attempts([died], now=100.0 * at))
    return lessons._quarantine()


async def deaths_to_the_quarantine(stage: Stage) -> object:
    """After how many deaths of four a request is refused."""
    return next((deaths for deaths in range(1, 5) if _quarantined(stage, deaths).until), None)


async def length_of_the_quarantine(stage: Stage) -> object:
    """How long it is refused after the second death, at 100 s."""
    return _quarantined(stage, 2).until["f"] - 100.0


ROWS: Mapping[str, tuple[Callable[[Stage], Awaitable[object]], Mapping[Any, object], Mapping[str, Any]]] = (
    MappingProxyType(
        {
            "pools[].routing.policy": (kinds_of_choice, {"least-in-flight": [10, 10], "session": [20]}, {}),
            "pools[].routing.prefix_bytes": (
                sessions_of_two_prompts,
                {0: (1, True), 50: (1, False), 500: (2, False)},
                {"pools[].routing.policy": "session"},
            ),
            "pools[].routing.slow_start_s": (weight_of_a_new_one, {0: "half", 10: "less", 1000: "little"}, {}),
            "pools[].routing.max_ejected": (ejected_of_four, {0.25: 1, 0.5: 2, 1: 3}, {}),
            "poison.deaths": (deaths_to_the_quarantine, {0: None, 1: 1, 3: 3}, {}),
            "poison.quarantine_s": (length_of_the_quarantine, {200: 200.0, 700: 700.0}, {}),
        }
    )
)
"""Path -> scene, what it sees by value, and settings that go with them."""
