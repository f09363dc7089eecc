"""Errors of engines and fleets: told inside a 200, in storms, by all backends at once, by requests they die of.

What workers report is given to the decisions of control as it is, so that the whole consequence shows: who is ejected,
what is quarantined, and what the next client gets.  The expected ends are those of the table in ``docs/faults.md``.
"""

from __future__ import annotations

from typing import Any

import pytest

from gateway.control import inbox
from gateway.core.link.messages import BackendFailure, Quarantine
from gateway.core.routing.backend import BackendState
from gateway.core.routing.snapshot import PoolView
from gateway.core.stream.http1 import TERMINATOR
from gateway.core.stream.summary import Outcome
from tests.fakes.apis import APIS, CHAT, COMPLETIONS, HEAD, MESSAGES, RESPONSES, Api, chunk
from tests.fakes.backend import End, Request, Script, ScriptedBackend, answer
from tests.fakes.client import Answer, raw_client
from tests.fakes.engine_events import DONE, chat, text, typed
from tests.fakes.fault_stand import Stand, stand
from tests.fakes.fleets import GOOD, REFUSED, pool
from tests.fakes.worker import backend_view
from tests.scenario.test_health_control import Control

pytestmark = pytest.mark.asyncio

all_apis = pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
stream_or_not = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


async def asked(at: Stand, api: Api, *, stream: bool = True, **more: Any) -> Answer:
    async with raw_client(at.worker.port) as client:
        await client.post(api.request(stream=stream) | more, path=api.path)
        return await client.answer()


def control_of(at: Stand) -> Control:
    """Control that has found the stand's backends well."""
    control = Control(pool("main", *"abcd"[: len(at.backends)]))
    for name in "abcd"[: len(at.backends)]:
        control.models(name, "tiny")
        control.health(0.1, name, GOOD)
    return control


def states(control: Control) -> set[str]:
    return {view.state.value for view in control.state.fleet.snapshot().backends}


def reported(at: Stand, now: float) -> tuple[BackendFailure, ...]:
    """What the worker has reported since the last time, dated for control."""
    found = tuple(
        BackendFailure(backend=it.backend, code=it.code, at=now, fingerprint=it.fingerprint)
        for it in at.worker.failures
    )
    at.worker.failures.clear()
    return found


# --- an error inside a 200 ----------------------------------------------------------------------------------------

CHAT_ERROR = b'data: {"error":{"message":"EngineCore died","type":"InternalServerError","param":null,"code":500}}\n\n'
FAILED = {"id": "resp_1", "status": "failed", "error": {"code": "server_error", "message": "x"}}
INSIDE: dict[str, tuple[Api, tuple[bytes, ...]]] = {
    "chat: an error": (CHAT, (CHAT_ERROR, DONE)),
    "chat: an abort": (CHAT, (chat(finish="abort"), DONE)),
    "chat: an error as a finish": (CHAT, (chat(finish="error"), DONE)),
    "completions: an error": (COMPLETIONS, (CHAT_ERROR, DONE)),
    "completions: an abort": (COMPLETIONS, (text("", finish="abort"), DONE)),
    "responses: an error": (RESPONSES, (typed("error", code="server_error", message="x", param=None),)),
    "responses: the error of chat": (RESPONSES, (CHAT_ERROR,)),
    "responses: a failed response": (RESPONSES, (typed("response.failed", response=FAILED),)),
    "messages: an error": (MESSAGES, (typed("error", error={"type": "api_error", "message": "x"}),)),
    "messages: no reason to stop": (
        MESSAGES,
        (typed("message_delta", delta={"stop_reason": None}, usage={}), typed("message_stop")),
    ),
}


@pytest.mark.parametrize("end", [End.KEEP_ALIVE, End.CLOSE], ids=["ends well", "closes"])
@pytest.mark.parametrize("what", INSIDE)
async def test_an_error_inside_a_200_is_relayed_as_it_is_and_recorded_as_a_failure(what: str, end: End) -> None:
    """The engine's own words and its own end: nothing is added to them, whatever its connection does then."""
    api, ending = INSIDE[what]
    async with stand() as at:
        last = (TERMINATOR,) if end is End.KEEP_ALIVE else ()
        at.plays(api.breaking(*map(chunk, ending), *last, end=end))
        seen = await asked(at, api)
        assert (seen.status, seen.body, seen.whole) == (200, b"".join((*api.begun, *ending)), True)
        await at.ended(Outcome.UPSTREAM_ERROR)


@all_apis
async def test_an_error_inside_a_200_in_one_piece_is_relayed_as_it_is_and_recorded_as_a_failure(api: Api) -> None:
    body = b'{"error":{"message":"EngineCore died","type":"InternalServerError","param":null,"code":500}}'
    async with stand() as at:
        at.plays(Script((answer(body),)))
        seen = await asked(at, api, stream=False)
        assert (seen.status, seen.body) == (200, body)
        await at.ended(Outcome.UPSTREAM_ERROR)


# --- storms -------------------------------------------------------------------------------------------------------


@all_apis
@stream_or_not
@pytest.mark.parametrize("status", [400, 404, 413, 422])
async def test_a_storm_of_4xx_is_relayed_and_ejects_nobody(api: Api, status: int, *, stream: bool) -> None:
    body = b'{"error":{"message":"the engine says no","type":"BadRequestError","param":null,"code":%d}}' % status
    async with stand() as at:
        control = control_of(at)
        at.plays(*[Script((answer(body, status=status),))] * 30)
        async with raw_client(at.worker.port) as client:
            for _ in range(30):
                await client.post(api.request(stream=stream), path=api.path)
                seen = await client.answer()
                assert (seen.status, seen.body) == (status, body)
        assert at.asked == 30, "each was asked once"
        assert {it.outcome for it in at.worker.records} == {Outcome.REJECTED}
        control.settled(1.0, *at.worker.records, failures=reported(at, 1.0))
        assert states(control) == {"serving"}


@all_apis
@stream_or_not
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("bounded", [False, True], ids=["", "with a queue"])
async def test_a_storm_of_429_or_503_is_backpressure_and_ejects_nobody(
    api: Api, status: int, *, stream: bool, bounded: bool
) -> None:
    """While all are busy each answers for itself, with a time to come back; whoever is free again gets the next one."""
    body = b'{"error":{"message":"too many"}}'
    busy = Script((answer(body, status=status, headers="retry-after: 3\r\n"),))
    async with stand(pool=PoolView(name="main", concurrency=1 if bounded else 0)) as at:
        control = control_of(at)
        at.plays(*[busy] * 30)
        async with raw_client(at.worker.port) as client:
            for _ in range(15):
                await client.post(api.request(stream=stream), path=api.path)
                seen = await client.answer()
                assert (seen.status, seen.body) == (status, body)
                assert 1 <= int(seen.headers["retry-after"]) <= 3
            assert at.asked == 30, "both were asked, as long as both were busy: none of them accepted it"
            control.settled(1.0, *at.worker.records, failures=reported(at, 1.0))
            assert states(control) == {"serving"}
            at.backends[1].drop_connections()
            for backend in at.backends:
                backend._scripts.clear()
            at.backends[1].add(api.good(stream=stream))
            at.a.add(busy)
            await client.post(api.request(stream=stream), path=api.path)
            seen = await client.answer()
        assert (seen.status, seen.headers["x-gateway-backend"]) == (200, "b")


# --- all down -----------------------------------------------------------------------------------------------------


@all_apis
@stream_or_not
@pytest.mark.parametrize("away", ["refusing", "ejected", "draining", "none"])
@pytest.mark.parametrize("bounded", [False, True], ids=["", "with a queue"])
async def test_all_down_is_a_503_with_a_time_to_come_back_and_recovery_is_at_once(
    api: Api, away: str, *, stream: bool, bounded: bool
) -> None:
    rules = PoolView(name="main", concurrency=4 if bounded else 0)
    async with stand(pool=rules) as at:
        views = [backend_view(it.url, name) for it, name in zip(at.backends, "ab", strict=True)]
        match away:
            case "refusing":
                for backend in at.backends:
                    await backend.stop()
            case "none":
                at.worker.serve([], pools=[PoolView(name="main", models=("tiny",), concurrency=rules.concurrency)])
            case _:
                state = BackendState(away)
                down = [backend_view(it.url, name, state=state) for it, name in zip(at.backends, "ab", strict=True)]
                at.worker.serve(down, pools=[rules])
        async with raw_client(at.worker.port) as client:
            for _ in range(3):
                await client.post(api.request(stream=stream), path=api.path)
                seen = await client.answer()
                assert (seen.status, api.refused(seen)) == (503, api.names("nothing_serving", status=503))
                assert int(seen.headers["retry-after"]) >= 1
            assert at.asked == 0
            if away == "refusing":
                for backend in at.backends:
                    await backend.start()
            else:
                at.worker.serve(views, pools=[rules])
            at.plays(api.good(stream=stream))
            await client.post(api.request(stream=stream), path=api.path)
            assert (await client.answer()).status == 200, "the very next one"


# --- requests that engines die of ---------------------------------------------------------------------------------


@all_apis
@stream_or_not
async def test_after_two_deaths_with_the_same_request_in_flight_it_is_quarantined(api: Api, *, stream: bool) -> None:
    async with stand() as at:
        control = control_of(at)
        at.plays(Script((HEAD,) if stream else (), End.RESET))
        for now, name in ((10.0, "a"), (20.0, "b")):
            at.worker.serve([backend_view(it.url, name) for it in at.backends if it is at.backends["ab".index(name)]])
            assert (await asked(at, api, stream=stream, user="deadly")).status == 502
            await at.worker.record(int(now / 10) - 1)
            control.settled(now, failures=reported(at, now))
            told = control.health(now + 0.1, name, REFUSED)
            told += control.at(now + 0.2, inbox.Ticked())
            for action in told:
                if isinstance(action, inbox.Broadcast) and isinstance(action.message, Quarantine):
                    until = dict.fromkeys(action.message.until, at.worker.desk._clock() + 100.0)
                    at.worker.desk.apply(Quarantine(suspects=action.message.suspects, until=until))
        assert at.asked == 2
        at.worker.serve([backend_view(it.url, name) for it, name in zip(at.backends, "ab", strict=True)])
        seen = await asked(at, api, stream=stream, user="deadly")
        assert (seen.status, api.refused(seen)) == (422, api.names("quarantined", status=422))
        assert int(seen.headers["retry-after"]) >= 1
        assert at.asked == 2, "no backend hears of it"
        at.plays(api.good(stream=stream))
        assert (await asked(at, api, stream=stream, user="innocent")).status == 200


@stream_or_not
async def test_who_was_only_beside_a_death_goes_on(*, stream: bool) -> None:
    """Two requests in flight on an engine that dies: both fail, both are suspects, and the innocent one is cleared."""

    def answering(request: Request) -> Script:
        return Script((HEAD,) if stream else (), End.HANG)

    async with stand(1) as at, ScriptedBackend(answerer=answering) as mortal:
        control = Control(pool("main", "a", "b"))
        for name in "ab":
            control.health(0.1, name, GOOD)
        at.worker.serve([backend_view(mortal.url, "b")])
        async with raw_client(at.worker.port) as deadly, raw_client(at.worker.port) as innocent:
            for client, user in ((deadly, "deadly"), (innocent, "innocent")):
                await client.post(CHAT.request(stream=stream) | {"user": user})
            await mortal.exchange(1)
            mortal.drop_connections(reset=True)
            assert [(await it.answer()).status for it in (deadly, innocent)] == [502, 502]
        await at.worker.record(1)
        failures = reported(at, 10.0)
        assert len({it.fingerprint for it in failures}) == 2
        control.settled(10.0, failures=failures)
        control.health(10.1, "b", REFUSED)
        at.worker.desk.apply(Quarantine(suspects=control.state.lessons.poison.suspects, until={}))
        at.worker.serve([backend_view(at.a.url)])
        at.plays(CHAT.good(stream=stream))
        assert (await asked(at, CHAT, stream=stream, user="innocent")).status == 200
        await at.worker.record(2)
        control.settled(12.0, failures=reported(at, 12.0))
        (left,) = control.state.lessons.poison.suspects
        assert left in {it.fingerprint for it in failures}
