"""Every recorded answer of a real vLLM, cut anywhere, reaches the client byte for byte and is counted the same."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.core.routing.parameters import ParameterPolicy
from gateway.core.routing.snapshot import TimerPolicy, WorkerPolicy
from gateway.core.stream.edit import split_events
from gateway.core.stream.outcome import decide_outcome
from gateway.core.stream.summary import Dialect, Ending, Flag, Outcome, StreamSummary
from gateway.core.stream.tap import Tap, summarise_body
from gateway.core.stream.whole import WholeEvents
from tests.fakes import recordings
from tests.fakes.backend import Script, ScriptedBackend
from tests.fakes.client import Answer, raw_client
from tests.fakes.recordings import RecordedEnd, Recording
from tests.fakes.worker import FakeWorker, backend_view, running_worker

# A 401 tells of the gateway's own key, so the client gets another error.
RELAYED = [
    r.name for r in recordings.load_all() if r.method == "POST" and r.dialect is not None and r.status != 401
]  # fmt: skip
# What the engine refused by itself, the gateway must not refuse before it.
LIFTED = ParameterPolicy(background=True, logprobs=1_000_000)
QUICK = WorkerPolicy(timers=TimerPolicy(stall_s=1.0, first_event_s=1.0), parameters=LIFTED)
PATIENT = WorkerPolicy(parameters=LIFTED)


def test_there_are_recordings_of_every_kind() -> None:
    """A loader that finds nothing must not make this file pass."""
    ends = {recordings.load(name).end for name in RELAYED}
    paths = {recordings.load(name).path for name in RELAYED}
    assert len(RELAYED) > 60
    assert paths >= {"/v1/responses", "/v1/messages", "/v1/messages/count_tokens", "/tokenize", "/detokenize"}
    assert ends == set(RecordedEnd)


async def _relay(recording: Recording, cuts: list[int], worker: FakeWorker, backend: ScriptedBackend) -> Answer:
    backend.add(Script.of_recording(recording, cuts=cuts))
    body = recording.request_body
    async with raw_client(worker.port) as client:
        await client.post(body if isinstance(body, dict) else b"{}", path=recording.path)
        if recording.end is RecordedEnd.CLIENT_CLOSED:
            # Leave when all that can be passed on has come: what is cut inside an event is held back.
            passed_on = WholeEvents().feed(recording.with_head().body)
            answer = await client.until(passed_on)
            client.close()
            await (await backend.exchange(len(backend.exchanges) - 1)).client_closed.wait()
            return answer
        return await client.answer()


@pytest.mark.asyncio
@pytest.mark.parametrize("name", RELAYED)
@given(data=st.data())
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
async def test_any_cut_gives_the_same_bytes_and_counts(name: str, data: st.DataObject) -> None:
    """Byte for byte where the engine finished; whole events and one error event where it did not."""
    recording = recordings.load(name)
    size = len(recording.with_head().raw)
    cuts = data.draw(st.lists(st.integers(0, size), max_size=12) if size else st.just([]))  # nothing to cut: one run
    policy = QUICK if recording.end is RecordedEnd.SILENCE else PATIENT
    async with ScriptedBackend() as backend, running_worker() as worker:
        model = (recording.request_body or {}).get("model", "") if isinstance(recording.request_body, dict) else ""
        worker.serve([backend_view(backend.url, models=(model,) if isinstance(model, str) else ())], policy=policy)
        answer = await _relay(recording, cuts, worker, backend)
        record = await worker.record()
    _check_bytes(recording, answer)
    expected = _expected_summary(recording)
    assert record.outcome is _expected_outcome(recording, expected)
    if record.summary is not None and expected is not None and recording.end is not RecordedEnd.CLIENT_CLOSED:
        assert _counts(record.summary) == _counts(expected)


def _check_bytes(recording: Recording, answer: Answer) -> None:
    sent = recording.with_head()
    if not sent.raw or (recording.end is RecordedEnd.SILENCE and not sent.body):
        assert answer.status in {502, 504}
        assert answer.whole
    elif not sent.is_event_stream:
        assert (answer.status, answer.body, answer.whole) == (sent.status, sent.body, True)
    elif recording.end is RecordedEnd.COMPLETE:
        assert (answer.status, answer.whole) == (200, True)
        assert answer.body.startswith(sent.body)
        added = answer.body[len(sent.body) :]
        assert added == b""  # the engine's own error event ends a stream of messages
    else:
        passed_on = WholeEvents().feed(sent.body)
        assert answer.body.startswith(passed_on)
        if recording.end is not RecordedEnd.CLIENT_CLOSED:
            _check_error_end(recording, answer, answer.body[len(passed_on) :])


def _check_error_end(recording: Recording, answer: Answer, added: bytes) -> None:
    events = split_events(added)
    assert answer.whole
    assert b'"error"' in events[0]
    if recording.dialect in {Dialect.CHAT, Dialect.COMPLETIONS}:
        assert events[1:] == [b"data: [DONE]\n\n"]


def _expected_summary(recording: Recording) -> StreamSummary | None:
    sent = recording.with_head()
    assert recording.dialect is not None
    if not sent.is_event_stream:
        return summarise_body(recording.dialect, sent.body, recording.shape) if sent.status == 200 else None
    tap = Tap(recording.dialect, recording.shape, max_event_bytes=1 << 24)
    tap.feed(sent.body, 1.0)
    return tap.close(1.0)


def _expected_outcome(recording: Recording, summary: StreamSummary | None) -> Outcome:
    sent = recording.with_head()
    ending = {
        RecordedEnd.COMPLETE: Ending.COMPLETE,
        RecordedEnd.EOF: Ending.EOF,
        RecordedEnd.SILENCE: Ending.STALL_TIMEOUT,
        RecordedEnd.CLIENT_CLOSED: Ending.CLIENT_GONE,
    }[recording.end]
    return decide_outcome(summary, ending, stream=sent.is_event_stream, status=sent.status)


def _counts(summary: StreamSummary) -> tuple[object, ...]:
    return (
        summary.events,
        summary.chunks,
        summary.prompt_tokens,
        summary.completion_tokens,
        summary.reasoning_tokens,
        summary.content_tokens,
        summary.finish_reasons,
        summary.done_marker,
        summary.terminal,
        summary.engine,
        set(summary.flags) - {Flag.BURST_START},  # that is of the time the pieces took, not of the cuts
    )
