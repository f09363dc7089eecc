"""Where a request goes: least in flight, elsewhere when nothing was accepted, over TCP, TLS and Unix sockets."""

from __future__ import annotations

import asyncio
import errno
import gc
import ssl
from pathlib import Path

import pytest

from gateway.core.link.messages import Pulse
from gateway.core.routing.backend import BackendState
from gateway.core.routing.snapshot import TimerPolicy, WorkerPolicy
from gateway.core.stream.summary import Ending, Outcome
from gateway.proxy.forward import Exchange
from tests.fakes.backend import End, Script, ScriptedBackend, answer
from tests.fakes.certificates import make_certificate
from tests.fakes.client import raw_client
from tests.fakes.worker import backend_view, running_worker
from tests.integration.test_relay_endings import HEAD, HELLO, REQUEST, ROLE, STOP, chunk

pytestmark = pytest.mark.asyncio

OK = Script((answer(b'{"choices":[{"index":0,"finish_reason":"stop","message":{}}]}'),))
ASK = {"model": "tiny"}


async def test_requests_go_where_the_fewest_are_in_flight_and_ties_go_round() -> None:
    async with ScriptedBackend() as a, ScriptedBackend() as b, running_worker() as worker:
        worker.serve([backend_view(a.url), backend_view(b.url, "b")])
        for backend in (a, b):
            backend.add(*[Script((), End.HANG)] * 4)
        clients = []
        for number in range(6):
            reader, writer = await asyncio.open_connection("127.0.0.1", worker.port)
            clients.append((reader, writer))
            writer.write(
                b'POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n{"model":"tiny"}'
            )
            async with asyncio.timeout(5):
                while len(a.exchanges) + len(b.exchanges) <= number:  # noqa: ASYNC110  (turns of the loop)
                    await asyncio.sleep(0)
        assert (len(a.exchanges), len(b.exchanges)) == (3, 3)
        assert worker.desk.in_flight == {"a": 3, "b": 3}
        for _, writer in clients:
            writer.transport.abort()


async def test_a_refused_connection_is_tried_elsewhere_and_reported() -> None:
    async with ScriptedBackend() as dead, ScriptedBackend() as alive, running_worker() as worker:
        await dead.stop()
        worker.serve([backend_view(dead.url, "dead"), backend_view(alive.url, "alive")])
        alive.add(OK, OK, OK)
        async with raw_client(worker.port) as client:
            for _ in range(3):
                await client.post(ASK)
                seen = await client.answer()
                assert (seen.status, seen.headers["x-gateway-backend"]) == (200, "alive")
        assert {f.backend for f in worker.failures} == {"dead"}
        assert [f.code for f in worker.failures] == ["connect_failed"], "a suspect is passed over for a while"
        assert max(r.attempts for r in worker.records) == 2


async def test_all_backends_down_is_a_503_at_once_and_recovers_at_once() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        await backend.stop()
        worker.serve([backend_view(backend.url)])
        async with raw_client(worker.port) as client:
            await client.post(ASK)
            seen = await client.answer()
            assert (seen.status, seen.error["code"]) == (503, "nothing_serving")
            assert "retry-after" in seen.headers
            assert (await worker.record()).outcome is Outcome.UPSTREAM_ERROR
            await backend.start()
            backend.add(OK)
            await client.post(ASK)
            assert (await client.answer()).status == 200


async def test_a_503_before_a_byte_is_tried_elsewhere() -> None:
    busy = answer(b'{"error":{"message":"queue full"}}', status=503)
    async with ScriptedBackend() as a, ScriptedBackend() as b, running_worker() as worker:
        worker.serve([backend_view(a.url), backend_view(b.url, "b")])
        a.add(Script((busy,)))
        b.add(Script((busy,)))
        async with raw_client(worker.port) as client:
            await client.post(ASK)
            seen = await client.answer()
        assert (seen.status, seen.body) == (503, b'{"error":{"message":"queue full"}}'), "the engine's own words"
        assert "x-gateway-error" not in seen.headers
        assert len(a.exchanges) == len(b.exchanges) == 1
        assert (await worker.record()).attempts == 2


@pytest.mark.parametrize(
    "stopping, attempts, status", [(True, 2, 200), (False, 1, 500)], ids=["we-stop-it", "not-ours"]
)
async def test_the_engine_s_shutdown_answer_is_retried_only_when_we_stop_it(
    stopping: bool,
    attempts: int,
    status: int,
) -> None:
    refusal = answer(b'{"error":{"message":"cannot schedule new futures after shutdown","code":500}}', status=500)
    async with ScriptedBackend() as a, ScriptedBackend() as b, running_worker() as worker:
        views = [
            backend_view(a.url, stopping=stopping),
            backend_view(b.url, "b", state=BackendState.SERVING, stopping=False),
        ]
        worker.serve(views)
        a.add(Script((refusal,)), Script((refusal,)))
        b.add(OK, OK)
        async with raw_client(worker.port) as client:
            while not a.exchanges:
                await client.post(ASK)
                seen = await client.answer()
        assert seen.status == status
        assert worker.records[-1].attempts == attempts


ABORT_BODY = (
    b'{"choices":[{"index":0,"message":{"content":""},"finish_reason":"abort"}],"usage":{"completion_tokens":0}}'
)
ABORT_EVENT = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}\n\n'
DONE = b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    "pieces",
    [(answer(ABORT_BODY),), (HEAD, chunk(ROLE), chunk(ABORT_EVENT), chunk(DONE) + b"0\r\n\r\n")],
    ids=["whole", "stream"],
)
@pytest.mark.parametrize("stopping", [True, False])
async def test_an_abort_without_a_token_goes_elsewhere_only_from_a_backend_that_we_stop(
    pieces: tuple[bytes, ...],
    stopping: bool,
) -> None:
    async with ScriptedBackend() as a, ScriptedBackend() as b, running_worker() as worker:
        worker.serve([backend_view(a.url, stopping=stopping), backend_view(b.url, "b")])
        a.add(Script(pieces), Script(pieces))
        b.add(*[Script((HEAD + chunk(ROLE + HELLO + STOP + DONE) + b"0\r\n\r\n",))] * 2)
        stream = len(pieces) > 1
        async with raw_client(worker.port) as client:
            while not a.exchanges:
                await client.post(REQUEST if stream else {**REQUEST, "stream": False})
                seen = await client.answer()
        if stopping:
            assert seen.headers["x-gateway-backend"] == "b"
            assert worker.records[-1].attempts == 2
        else:
            assert b"abort" in seen.body
            assert worker.records[-1].outcome is Outcome.UPSTREAM_ERROR


async def test_a_stopping_backend_that_does_answer_is_relayed_from_the_first_event() -> None:
    async with ScriptedBackend() as a, running_worker() as worker:
        worker.serve([backend_view(a.url, stopping=True)])
        a.add(
            Script((HEAD, chunk(ROLE), chunk(HELLO), chunk(STOP + DONE), b"0\r\n\r\n")),
            Script((HEAD, chunk(ROLE + ABORT_EVENT))),
        )
        async with raw_client(worker.port) as client:
            await client.post(REQUEST)
            assert (await client.answer()).body == ROLE + HELLO + STOP + DONE
            await client.post(REQUEST)
            seen = await client.answer()
            assert (seen.status, seen.error["code"]) == (503, "backend_refused"), "there is no other backend"


@pytest.mark.parametrize("status", [400, 404, 422, 429, 500])
async def test_an_error_status_of_the_engine_is_relayed_as_it_is(status: int) -> None:
    body = b'{"error":{"message":"the engine says no","type":"BadRequestError","param":null,"code":400}}'
    async with ScriptedBackend() as a, ScriptedBackend() as b, running_worker() as worker:
        worker.serve([backend_view(a.url), backend_view(b.url, "b")])
        for backend in (a, b):
            backend.add(Script((answer(body, status=status),)))
        async with raw_client(worker.port) as client:
            await client.post(REQUEST)
            seen = await client.answer()
        assert (seen.status, seen.body) == (status, body)
        assert len(a.exchanges) + len(b.exchanges) == 1
        record = await worker.record()
        assert record.outcome is (Outcome.REJECTED if status < 500 else Outcome.UPSTREAM_ERROR)
        assert bool(worker.failures) is (status >= 500), "a 4xx is no sign of illness"


async def test_a_whole_answer_that_breaks_off_is_a_502_when_short_and_a_cut_when_long() -> None:
    short = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"
    long = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n" + b"x" * 500_000
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script((short,), End.CLOSE), Script((long,), End.CLOSE))
        async with raw_client(worker.port) as client:
            await client.post(ASK)
            assert (await client.answer()).status == 502
            await client.post(ASK)
            seen = await client.answer()
            assert (seen.status, seen.whole) == (200, False)
        assert [r.outcome for r in worker.records] == [Outcome.UPSTREAM_ERROR] * 2


async def test_a_long_answer_flows_and_is_counted() -> None:
    usage = b'"usage":{"prompt_tokens":1,"completion_tokens":7,"total_tokens":8}}'
    body = b'{"choices":[{"index":0,"finish_reason":"stop","message":{"content":"' + b"x" * 600_000 + b'"}}],' + usage
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script((answer(body),)))
        async with raw_client(worker.port) as client:
            await client.post(ASK)
            seen = await client.answer()
        assert (seen.body, seen.whole) == (body, True)
        record = await worker.record()
        assert record.summary is not None
        assert (record.summary.completion_tokens, record.outcome) == (7, Outcome.OK)


async def test_the_backend_s_own_key_goes_upstream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_KEY", "engine-secret")
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url, api_key_env="ENGINE_KEY")])
        backend.add(OK)
        async with raw_client(worker.port) as client:
            await client.post(ASK, headers={"Authorization": "Bearer client-secret"})
            await client.answer()
        assert (await backend.exchange(0)).request.headers["authorization"] == "Bearer engine-secret"


async def test_a_unix_socket_backend(tmp_path: Path) -> None:
    async with ScriptedBackend(unix_path=tmp_path / "engine.sock") as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(OK, OK)
        async with raw_client(worker.port) as client:
            for _ in range(2):
                await client.post(ASK)
                assert (await client.answer()).status == 200
        assert backend.accepted == 1


async def test_an_https_backend_is_verified(tmp_path: Path) -> None:
    key, cert = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    async with ScriptedBackend(tls=context) as backend, running_worker() as worker:
        backend.add(OK, OK)
        async with raw_client(worker.port) as client:
            worker.serve([backend_view(backend.url, tls_ca=str(cert))])
            await client.post(ASK)
            assert (await client.answer()).status == 200
            worker.serve([backend_view(backend.url)])
            await client.post(ASK)
            assert (await client.answer()).status == 503, "a certificate that nobody vouches for is no backend"
        assert len(backend.exchanges) == 1


@pytest.mark.looptime
async def test_a_silent_but_advancing_engine_is_given_more_time_and_a_still_one_is_not() -> None:
    timers = TimerPolicy(stall_s=120, silent_max_s=600)
    async with ScriptedBackend() as backend, running_worker(idle_s=100_000) as worker:
        worker.serve([backend_view(backend.url)], policy=WorkerPolicy(timers=timers))
        backend.add(Script((HEAD, chunk(ROLE + HELLO)), End.HANG))
        clock = asyncio.get_running_loop().time

        async def pulses(advancing_s: float) -> None:
            started = clock()
            while clock() - started < 1000:
                tokens = min(clock() - started, advancing_s)
                worker.desk.apply(Pulse(backend="a", generation_tokens=tokens, read_at=clock()))
                await asyncio.sleep(2)

        async with raw_client(worker.port) as client, asyncio.TaskGroup() as group:
            beat = group.create_task(pulses(advancing_s=1000))
            await client.post(REQUEST)
            await client.answer(timeout_s=100_000)
            beat.cancel()
        record = await worker.record()
        assert record.ending is Ending.STALL_TIMEOUT
        assert 600 <= record.total_s < 605


@pytest.mark.looptime
async def test_a_kept_connection_is_not_used_after_its_idle_time() -> None:
    async with ScriptedBackend() as backend, running_worker(idle_s=100_000) as worker:
        worker.serve([backend_view(backend.url)], policy=WorkerPolicy(timers=TimerPolicy(upstream_idle_s=3)))
        backend.add(OK, OK, OK)
        async with raw_client(worker.port) as client:
            for pause_s in (0, 2, 4):
                await asyncio.sleep(pause_s)
                await client.post(ASK)
                assert (await client.answer()).status == 200
        assert backend.accepted == 2


async def test_an_answer_without_a_length_that_breaks_off_is_a_502() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n"
    whole = b'{"choices":[{"index":0,"finish_reason":"stop","message":{}}]}'
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script((head + whole[:-9],), End.CLOSE), Script((head + whole,), End.CLOSE))
        async with raw_client(worker.port) as client:
            await client.post(ASK)
            assert (await client.answer()).status == 502
            await client.post(ASK)
            seen = await client.answer()
            assert (seen.status, seen.body, seen.whole) == (200, whole, True)


async def test_a_redirect_of_a_backend_is_not_passed_on() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script((answer(b"", status=307, headers="location: http://10.0.0.1/\r\n"),)))
        async with raw_client(worker.port) as client:
            await client.post(ASK)
            seen = await client.answer()
        assert seen.status == 502
        assert "location" not in seen.headers


async def test_a_long_error_answer_counts_as_a_failure_of_the_backend() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script((answer(b'{"error":"' + b"x" * 400_000 + b'"}', status=500),)))
        async with raw_client(worker.port) as client:
            await client.post(ASK)
            assert (await client.answer()).status == 500
        assert (await worker.record()).ending is Ending.BAD_STATUS
        assert [failure.code for failure in worker.failures] == ["status_500"]


async def test_running_out_of_descriptors_is_not_the_backend_s_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])

        async def exhausted(*_: object, **__: object) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

        async with raw_client(worker.port) as client:
            # uvloop's loop takes no attributes: what opens connections is replaced one floor above it.
            monkeypatch.setattr(worker.upstreams, "_open_to", exhausted)
            await client.post(ASK)
            seen = await client.answer()
            assert (seen.status, seen.error["code"]) == (429, "overloaded")
            assert worker.failures == []
            monkeypatch.undo()
            backend.add(OK)
            await client.post(ASK)
            assert (await client.answer()).status == 200


async def test_a_settled_request_leaves_nothing_for_the_collector() -> None:
    whole = Script((HEAD + chunk(ROLE + HELLO) + chunk(STOP + DONE) + b"0\r\n\r\n",))
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(*[whole] * 4, *[OK] * 4)
        async with raw_client(worker.port) as client:
            for body in (REQUEST, ASK):
                for number in range(4):
                    await client.post(body)
                    await client.answer()
                    if number == 0:
                        gc.collect()
                        gc.disable()
                try:
                    left = [thing for thing in gc.get_objects() if isinstance(thing, Exchange)]
                finally:
                    gc.enable()
                assert len(left) <= 1, "an exchange that is over is freed at once, with its request's body"
