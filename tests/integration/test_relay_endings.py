"""How streams end: the right outcome for each way, an error that clients can read, nothing made up."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.routing.snapshot import LimitPolicy, TimerPolicy, WorkerPolicy
from gateway.core.stream.summary import Ending, Flag, Outcome
from tests.fakes.backend import End, Script, ScriptedBackend, answer
from tests.fakes.client import raw_client
from tests.fakes.worker import FakeWorker, backend_view, running_worker

pytestmark = pytest.mark.asyncio

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
REQUEST = {"model": "tiny", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
DONE = b"data: [DONE]\n\n"


def event(delta: str, finish: str = "null") -> bytes:
    """One chat chunk."""
    return b'data: {"choices":[{"index":0,"delta":{%b},"finish_reason":%b}]}\n\n' % (delta.encode(), finish.encode())


ROLE = event('"role":"assistant","content":""')
HELLO = event('"content":"hello"')
STOP = event("", '"stop"')


def chunk(data: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


async def ended(worker: FakeWorker, backend: ScriptedBackend, script: Script) -> tuple[bytes, bool, int]:
    """Body, wholeness and status of a stream that the backend plays by ``script``."""
    backend.add(script)
    async with raw_client(worker.port) as client:
        await client.post(REQUEST)
        seen = await client.answer()
    return seen.body, seen.whole, seen.status


async def test_a_finished_stream_is_ok_and_the_connection_serves_again() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        whole = HEAD + chunk(ROLE) + chunk(HELLO) + chunk(STOP) + chunk(DONE) + b"0\r\n\r\n"
        backend.add(Script((whole,)), Script((whole,)))
        async with raw_client(worker.port) as client:
            for number in range(2):
                await client.post(REQUEST)
                seen = await client.answer()
                assert (seen.body, seen.whole) == (ROLE + HELLO + STOP + DONE, True)
                assert (await worker.record(number)).outcome is Outcome.OK
        assert backend.accepted == 1, "the upstream connection is kept for the second request"


@pytest.mark.parametrize("end, ending", [(End.CLOSE, Ending.EOF), (End.RESET, Ending.RESET)], ids=["closed", "reset"])
async def test_a_broken_stream_ends_with_an_error_event_and_the_marker(end: End, ending: Ending) -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        body, whole, status = await ended(worker, backend, Script((HEAD, chunk(ROLE), chunk(HELLO)), end))
        assert body.startswith(ROLE + HELLO + b'data: {"error":')
        assert body.endswith(DONE)
        assert (whole, status) == (True, 200)
        record = await worker.record()
        assert (record.outcome, record.ending) == (Outcome.UPSTREAM_ERROR, ending)
        assert record.error_code == "backend_died"
        assert [f.backend for f in worker.failures] == ["a"]


async def test_an_event_cut_in_the_middle_is_never_passed_on() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        body, _, _ = await ended(worker, backend, Script((HEAD, chunk(ROLE), chunk(HELLO[:20])), End.CLOSE))
        assert body.startswith(ROLE + b'data: {"error":')


async def test_a_clean_http_end_without_the_marker_is_an_error() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        body, whole, _ = await ended(worker, backend, Script((HEAD, chunk(ROLE), chunk(HELLO), b"0\r\n\r\n")))
        assert body.startswith(ROLE + HELLO + b'data: {"error":')
        assert body.endswith(DONE)
        assert whole
        assert (await worker.record()).outcome is Outcome.UPSTREAM_ERROR


async def test_an_abort_is_relayed_as_it_is_and_is_no_success() -> None:
    abort = event("", '"abort"')
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        script = Script((HEAD, chunk(ROLE + HELLO), chunk(abort + DONE), b"0\r\n\r\n"))
        body, _, _ = await ended(worker, backend, script)
        assert body == ROLE + HELLO + abort + DONE
        assert (await worker.record()).outcome is Outcome.UPSTREAM_ERROR


async def test_an_error_inside_a_200_is_relayed_and_recorded_as_failure() -> None:
    error = b'data: {"error":{"message":"EngineCore encountered an issue","type":"InternalServerError","code":500}}\n\n'
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        script = Script((HEAD, chunk(ROLE + HELLO), chunk(error + DONE), b"0\r\n\r\n"))
        body, _, _ = await ended(worker, backend, script)
        assert body == ROLE + HELLO + error + DONE
        assert (await worker.record()).outcome is Outcome.UPSTREAM_ERROR


@pytest.mark.parametrize("end", [End.CLOSE, End.RESET])
async def test_a_backend_that_dies_before_a_byte_is_a_502_and_not_replayed(end: End) -> None:
    async with ScriptedBackend() as backend, ScriptedBackend() as other, running_worker() as worker:
        worker.serve([backend_view(backend.url), backend_view(other.url, "b")])
        backend.add(Script((HEAD,), end))
        other.add(Script((HEAD,), end))
        async with raw_client(worker.port) as client:
            await client.post(REQUEST)
            seen = await client.answer()
        assert (seen.status, seen.error["code"], seen.headers["x-gateway-error"]) == (502, "backend_died", "1")
        assert len(backend.exchanges) + len(other.exchanges) == 1


@pytest.mark.parametrize(
    "reply",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        answer(b"<html>login</html>", content_type="text/html"),
        answer(b'{"choices":[]}'),
        HEAD + b"zz\r\n",
        HEAD + b"5\r\nhelloXX",
    ],
    ids=["not-http", "html", "json-for-a-stream", "bad-chunk-size", "bad-chunk-end"],
)
async def test_garbage_before_an_event_is_a_502(reply: bytes) -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script((reply,), End.HANG))
        async with raw_client(worker.port) as client:
            await client.post(REQUEST)
            seen = await client.answer()
        assert (seen.status, seen.error["code"]) == (502, "backend_garbled")
        await (await backend.exchange(0)).client_closed.wait()


async def test_broken_framing_after_an_event_is_an_error_event() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        body, whole, _ = await ended(worker, backend, Script((HEAD, chunk(ROLE), b"nonsense\r\n"), End.HANG))
        assert body.startswith(ROLE + b'data: {"error":')
        assert whole
        assert (await worker.record()).ending is Ending.BAD_FRAMING


async def test_one_event_larger_than_what_is_held_ends_the_stream() -> None:
    policy = WorkerPolicy(limits=LimitPolicy(hold_bytes=1000))
    huge = b'data: {"x":"' + b"x" * 5000
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)], policy=policy)
        script = Script((HEAD, chunk(ROLE), *[chunk(huge[i : i + 500]) for i in range(0, 5000, 500)]), End.HANG)
        body, _, _ = await ended(worker, backend, script)
        assert body.startswith(ROLE + b'data: {"error":')
        assert (await worker.record()).ending is Ending.OVERSIZE


async def test_an_event_larger_than_what_is_measured_passes_and_is_counted() -> None:
    policy = WorkerPolicy(limits=LimitPolicy(event_bytes=1000))
    large = event('"content":"' + "x" * 2000 + '"')
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)], policy=policy)
        script = Script((HEAD, chunk(ROLE + large + STOP + DONE), b"0\r\n\r\n"))
        body, whole, _ = await ended(worker, backend, script)
        assert (body, whole) == (ROLE + large + STOP + DONE, True)
        record = await worker.record()
        assert record.outcome is Outcome.OK
        assert record.summary is not None
        assert (record.summary.oversize_events, record.summary.flags) == (1, (Flag.OVERSIZE_EVENTS,))


async def test_a_large_event_that_fits_passes_untouched() -> None:
    large = b'data: {"choices":[{"index":0,"delta":{"content":"' + b"x" * (1 << 20) + b'"}}]}\n\n'
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        whole = HEAD + chunk(ROLE) + chunk(large) + chunk(STOP + DONE) + b"0\r\n\r\n"
        backend.add(Script(tuple(whole[i : i + 65536] for i in range(0, len(whole), 65536))))
        async with raw_client(worker.port) as client:
            await client.post(REQUEST)
            assert (await client.answer()).body == ROLE + large + STOP + DONE


@pytest.mark.looptime
async def test_silence_before_the_first_event_is_a_504() -> None:
    policy = WorkerPolicy(timers=TimerPolicy(first_event_s=600, stall_s=120))
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)], policy=policy)
        backend.add(Script((HEAD,), End.HANG))
        async with raw_client(worker.port) as client:
            await client.post(REQUEST)
            seen = await client.answer(timeout_s=10_000)
        assert (seen.status, seen.error["code"]) == (504, "backend_silent")
        record = await worker.record()
        assert record.outcome is Outcome.UPSTREAM_TIMEOUT
        assert 600 <= record.total_s < 601


@pytest.mark.looptime
async def test_silence_in_the_middle_ends_with_an_error_event_after_the_stall_time() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)], policy=WorkerPolicy(timers=TimerPolicy(stall_s=120)))
        backend.add(Script((HEAD, chunk(ROLE + HELLO)), End.HANG))
        async with raw_client(worker.port) as client:
            await client.post(REQUEST)
            seen = await client.answer(timeout_s=10_000)
        assert seen.body.startswith(ROLE + HELLO + b'data: {"error":')
        record = await worker.record()
        assert (record.outcome, record.ending) == (Outcome.UPSTREAM_TIMEOUT, Ending.STALL_TIMEOUT)
        assert 120 <= record.total_s < 121
        await (await backend.exchange(0)).client_closed.wait()


@pytest.mark.looptime
async def test_the_total_time_ends_a_stream_that_never_stops() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        timers = TimerPolicy(stall_s=120, total_s=50)
        worker.serve([backend_view(backend.url)], policy=WorkerPolicy(timers=timers))
        backend.add(Script((HEAD, chunk(ROLE)), End.HANG))
        async with raw_client(worker.port) as client:
            await client.post(REQUEST)
            await client.answer(timeout_s=10_000)
        assert (await worker.record()).ending is Ending.TOTAL_TIMEOUT


async def test_shutdown_ends_open_streams_with_an_error_event() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script((HEAD, chunk(ROLE)), End.HANG))
        async with raw_client(worker.port) as client:
            await client.post(REQUEST)
            await client.until(ROLE)
            worker.desk.stopping = True
            worker.pipeline.end_all()
            seen = await client.answer()
            assert b"shutting down" in seen.body
            assert seen.whole
            assert await client.at_end()
        assert (await worker.record()).outcome is Outcome.SHUTDOWN


async def test_an_http_1_0_client_gets_the_body_without_chunks_and_the_end() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script((HEAD + chunk(ROLE), chunk(STOP + DONE) + b"0\r\n\r\n")))
        async with raw_client(worker.port) as client:
            await client.post(REQUEST, version="1.0")
            async with asyncio.timeout(10):
                data = await client.reader.read(-1)
        head, _, body = data.partition(b"\r\n\r\n")
        assert body == ROLE + STOP + DONE
        assert b"chunked" not in head


async def test_a_backend_without_chunked_framing_is_relayed_in_whole_events() -> None:
    head = b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        body, whole, _ = await ended(worker, backend, Script((head, ROLE[:9], ROLE[9:] + STOP, DONE), End.CLOSE))
        assert (body, whole) == (ROLE + STOP + DONE, True)
        assert (await worker.record()).outcome is Outcome.OK


async def test_a_finish_event_that_waited_for_usage_is_not_lost_when_the_backend_dies() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        body, _, _ = await ended(worker, backend, Script((HEAD, chunk(ROLE + HELLO), chunk(STOP)), End.CLOSE))
        assert body.startswith(ROLE + HELLO + STOP + b'data: {"error":')
        assert (await worker.record()).error_code == "backend_died"


async def test_an_ending_without_the_marker_names_the_error_that_the_client_was_told() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        await ended(worker, backend, Script((HEAD, chunk(ROLE + HELLO), b"0\r\n\r\n")))
        assert (await worker.record()).error_code == "backend_died"


@pytest.mark.looptime
async def test_comments_for_ever_are_no_sign_of_life() -> None:
    async with ScriptedBackend() as backend, running_worker(idle_s=100_000) as worker:
        worker.serve([backend_view(backend.url)], policy=WorkerPolicy(timers=TimerPolicy(stall_s=120)))
        gates = [asyncio.Event() for _ in range(40)]
        pieces = [piece for gate in gates for piece in (gate, chunk(b": keep-alive\n\n"))]
        backend.add(Script((HEAD, chunk(ROLE + HELLO), *pieces), End.HANG))

        async def open_gates() -> None:
            for gate in gates:
                await asyncio.sleep(10)
                gate.set()

        async with raw_client(worker.port) as client, asyncio.TaskGroup() as group:
            opening = group.create_task(open_gates())
            await client.post(REQUEST)
            seen = await client.answer(timeout_s=10_000)
            opening.cancel()
        assert b": keep-alive" in seen.body
        record = await worker.record()
        assert record.ending is Ending.STALL_TIMEOUT
        assert 120 <= record.total_s < 131


@pytest.mark.looptime
async def test_events_that_begin_with_a_comment_line_are_signs_of_life() -> None:
    async with ScriptedBackend() as backend, running_worker(idle_s=100_000) as worker:
        worker.serve([backend_view(backend.url)], policy=WorkerPolicy(timers=TimerPolicy(stall_s=120)))
        gates = [asyncio.Event() for _ in range(40)]
        pieces = [piece for gate in gates for piece in (gate, chunk(b": ping\n" + HELLO))]
        backend.add(Script((HEAD, chunk(b": ping\n" + ROLE), *pieces, chunk(STOP + DONE) + b"0\r\n\r\n")))
        async with raw_client(worker.port) as client:
            await client.post(REQUEST)
            await client.until(ROLE)
            for gate in gates:
                await asyncio.sleep(10)
                gate.set()
            await client.answer(timeout_s=10_000)
        assert (await worker.record()).outcome is Outcome.OK


async def test_the_gateway_s_own_key_being_refused_is_not_the_client_s_401() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script((answer(b'{"error":"Unauthorized"}', status=401),)))
        async with raw_client(worker.port) as client:
            await client.post(REQUEST)
            seen = await client.answer()
        assert (seen.status, "api_key_env" in seen.error["message"]) == (502, True)
        assert (await worker.record()).ending is Ending.KEY_REFUSED


@pytest.mark.looptime
async def test_how_long_bytes_were_held_for_an_event_to_become_whole() -> None:
    gate = asyncio.Event()
    async with ScriptedBackend() as backend, running_worker(idle_s=100_000) as worker:
        worker.serve([backend_view(backend.url)])
        whole = chunk(HELLO)
        script = Script((HEAD, chunk(ROLE), whole[:20], gate, whole[20:], chunk(STOP + DONE) + b"0\r\n\r\n"))
        backend.add(script)
        async with raw_client(worker.port) as client:
            await client.post(REQUEST)
            await client.until(ROLE)
            await asyncio.sleep(3)
            gate.set()
            await client.answer(timeout_s=100)
        assert 2.9 < (await worker.record()).hold_max_s < 3.5


@pytest.mark.parametrize("end", [End.CLOSE, End.RESET])
async def test_a_connection_that_breaks_after_the_marker_adds_nothing(end: End) -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        body, whole, _ = await ended(worker, backend, Script((HEAD, chunk(ROLE + STOP), chunk(DONE)), end))
        assert (body, whole) == (ROLE + STOP + DONE, True)
        assert (await worker.record()).outcome is Outcome.OK


async def test_a_comment_before_the_first_event_gives_no_status_away() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        comment = b": keep-alive\n\n"
        backend.add(
            Script((HEAD, chunk(comment), chunk(comment)), End.CLOSE),
            Script((HEAD, chunk(comment), chunk(comment), chunk(ROLE + STOP + DONE) + b"0\r\n\r\n")),
        )
        async with raw_client(worker.port) as client:
            await client.post(REQUEST)
            assert (await client.answer()).status == 502
            await client.post(REQUEST)
            assert (await client.answer()).body == comment + comment + ROLE + STOP + DONE


async def test_a_backend_that_is_faster_than_the_loop_lets_the_others_have_their_turn() -> None:
    """Every read of a flood is followed by a turn of the loop; the stream still comes whole."""
    flood = chunk(HELLO * 200) * 200
    async with ScriptedBackend() as backend, running_worker(client_buffer_bytes=64 * 1024 * 1024) as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script((HEAD + chunk(ROLE) + flood + chunk(STOP + DONE) + b"0\r\n\r\n",)))
        async with raw_client(worker.port) as client:
            await client.post(REQUEST)
            seen = await client.answer()
        assert seen.body == ROLE + HELLO * 200 * 200 + STOP + DONE
        assert (await worker.record()).outcome is Outcome.OK
