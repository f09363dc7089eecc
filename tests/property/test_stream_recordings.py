"""What real engines sent, cut at random: the same summary for every cut, the engine's own counts, the right outcome."""

from __future__ import annotations

import httptools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.stream.outcome import decide_outcome
from gateway.core.stream.summary import Dialect, Ending, Exactness, Flag, Outcome, StreamSummary
from gateway.core.stream.tap import Tap, summarise_body
from tests.fakes.backend import cut
from tests.fakes.recordings import Read, RecordedEnd, Recording, load, load_all, streams

ENDINGS = {
    RecordedEnd.COMPLETE: Ending.COMPLETE,
    RecordedEnd.EOF: Ending.EOF,
    RecordedEnd.SILENCE: Ending.STALL_TIMEOUT,
    RecordedEnd.CLIENT_CLOSED: Ending.CLIENT_GONE,
}
STREAMS = streams()
BODIES = [
    recording
    for recording in load_all()
    if recording.dialect is not None and recording.status == 200 and not recording.is_event_stream
]


def ids(recordings: list[Recording]) -> list[str]:
    return [recording.name for recording in recordings]


def dialect_of(recording: Recording) -> Dialect:
    assert recording.dialect is not None
    return recording.dialect


def tapped(recording: Recording, reads: tuple[Read, ...]) -> StreamSummary:
    tap = Tap(dialect_of(recording), recording.shape, max_event_bytes=1 << 20)
    for read in reads:
        tap.feed(read.data, read.at_s)
    return tap.close(recording.reads[-1].at_s)


def summary_of(recording: Recording) -> StreamSummary:
    if recording.is_event_stream:
        return tapped(recording, recording.body_reads)
    return summarise_body(dialect_of(recording), recording.body, recording.shape)


def outcome_of(recording: Recording) -> Outcome:
    summary = summary_of(recording) if recording.status == 200 else None
    ending = ENDINGS[recording.end]
    if recording.status >= 400:
        ending = Ending.BAD_STATUS
    return decide_outcome(summary, ending, stream=recording.shape.stream, status=recording.status)


def test_there_are_recordings_of_every_kind() -> None:
    assert len(STREAMS) >= 50
    assert {recording.dialect for recording in STREAMS} == set(Dialect)
    assert {recording.end for recording in STREAMS} == set(RecordedEnd)


@pytest.mark.parametrize("recording", STREAMS, ids=ids(STREAMS))
@settings(max_examples=15, deadline=None, database=None)
@given(data=st.data())
def test_every_cut_of_a_recording_gives_the_same_summary(recording: Recording, data: st.DataObject) -> None:
    length = len(recording.body)
    cuts = data.draw(st.lists(st.integers(0, length), max_size=40))
    if data.draw(st.booleans()):
        cuts += range(0, length, data.draw(st.integers(1, 500)))
    recut: list[Read] = []
    start = 0
    for read in recording.body_reads:
        inside = [position - start for position in cuts if start < position < start + len(read.data)]
        recut.extend(Read(read.at_s, piece) for piece in cut(read.data, inside))
        start += len(read.data)
    assert b"".join(read.data for read in recut) == recording.body
    assert tapped(recording, tuple(recut)) == tapped(recording, recording.body_reads)


@pytest.mark.parametrize("recording", STREAMS + BODIES, ids=ids(STREAMS + BODIES))
def test_counts_are_the_engine_s_own_where_it_gave_any(recording: Recording) -> None:
    summary = summary_of(recording)
    assert summary.bad_events == summary.oversize_events == 0
    usage = recording.last_usage
    if usage is None or (recording.end is not RecordedEnd.COMPLETE and summary.total_exactness is Exactness.ESTIMATED):
        assert summary.total_exactness is not Exactness.EXACT
        return
    assert summary.completion_tokens == usage.get("completion_tokens", usage.get("output_tokens"))
    assert summary.prompt_tokens == usage.get("prompt_tokens", usage.get("input_tokens"))
    assert summary.total_exactness is Exactness.EXACT
    details = usage.get("completion_tokens_details") or usage.get("output_tokens_details")
    if details is not None:
        # Every count that these engines gave is plausible: none is replaced by an estimate.
        assert summary.reasoning_tokens == details["reasoning_tokens"]
        assert summary.split_exactness is Exactness.EXACT


# Streams whose only token, or whose whole thought, is not sent.
WORDLESS = {"responses-stream-empty", "responses-stream-no-reasoning-length", "messages-stream-empty"}
WORDED = [recording for recording in STREAMS if recording.name.split("/")[1] not in WORDLESS]


@pytest.mark.parametrize("name", sorted(WORDLESS))
def test_a_stream_without_a_word_is_whole_and_counted_but_has_no_first_token(name: str) -> None:
    summary = summary_of(load(f"vllm-0.32-cpu/{name}"))
    assert summary.first_token is None
    assert summary.terminal
    assert summary.completion_tokens


@pytest.mark.parametrize("recording", WORDED, ids=ids(WORDED))
def test_channels_never_take_more_time_or_tokens_than_there_are(recording: Recording) -> None:
    summary = summary_of(recording)
    assert summary.first_token is not None
    assert summary.first_event is not None
    assert summary.window_start is not None
    assert summary.window_end is not None
    assert summary.last_token is not None
    assert (
        summary.first_event <= summary.window_start <= summary.first_token <= summary.last_token <= summary.window_end
    )
    if summary.reasoning_tokens is not None and summary.content_tokens is not None:
        assert summary.reasoning_tokens + summary.content_tokens == summary.completion_tokens


def recorded_with_metrics() -> list[Recording]:
    # Responses have no events at the ends of the decode window, so their rate is flagged and not compared here.
    return [
        recording
        for recording in STREAMS
        if b'"mean_itl_ms"' in recording.body and recording.dialect is not Dialect.RESPONSES
    ]


@pytest.mark.parametrize("recording", recorded_with_metrics(), ids=ids(recorded_with_metrics()))
def test_the_decode_rate_is_the_engine_s_own(recording: Recording) -> None:
    summary = summary_of(recording)
    assert summary.engine is not None
    assert summary.engine.mean_itl_ms is not None
    assert summary.decode_tps == pytest.approx(1000 / summary.engine.mean_itl_ms, rel=0.03)


H200_SINGLE = ["q8b-chat-usage", "q8b-chat-contusage", "rust-chat-usage", "rust-chat-contusage"]


@pytest.mark.parametrize("name", H200_SINGLE)
def test_single_streams_of_one_h200_server_agree_within_two_percent(name: str) -> None:
    summary = summary_of(load(f"vllm-0.26-h200/{name}"))
    assert summary.decode_tps == pytest.approx(196.5, rel=0.02)
    assert summary.gap_p50_s == pytest.approx(0.0051, rel=0.05)


def test_a_split_by_length_is_near_the_engine_s_count() -> None:
    # The same prompt and seed through Messages, which counts no reasoning, and through chat, which does.
    counted, split = (
        summary_of(load(f"vllm-0.32-cpu/{name}")) for name in ("chat-stream-include-usage", "messages-stream")
    )
    assert counted.completion_tokens == split.completion_tokens
    assert split.split_exactness is Exactness.ESTIMATED
    assert split.reasoning_tokens == pytest.approx(counted.reasoning_tokens, rel=0.1)


# --- outcomes -----------------------------------------------------------------------------------------------------

BADLY_ENDED = {
    "sigterm-stream": Outcome.UPSTREAM_TIMEOUT,  # said nothing more and did not close
    "sigterm-nonstream": Outcome.UPSTREAM_TIMEOUT,
    "sigterm-run2-stream": Outcome.UPSTREAM_ERROR,  # abort, usage and [DONE]
    "sigterm-run2-nonstream": Outcome.UPSTREAM_ERROR,  # 200 with abort
    "sigterm-run4-stream": Outcome.UPSTREAM_ERROR,
    "sigterm-run4-nonstream": Outcome.UPSTREAM_ERROR,
    "sigterm-run5-stream": Outcome.UPSTREAM_TIMEOUT,
    "sigterm-run5-nonstream": Outcome.UPSTREAM_TIMEOUT,
    "sigkill-stream": Outcome.UPSTREAM_ERROR,  # the connection closed
    "sigkill-nonstream": Outcome.UPSTREAM_ERROR,
    "engine-killed-stream": Outcome.UPSTREAM_ERROR,  # an error event, then [DONE]
    "engine-killed-responses-stream": Outcome.UPSTREAM_ERROR,  # the connection closed
    "engine-killed-responses-nonstream": Outcome.UPSTREAM_ERROR,  # 500
    "engine-killed-messages-stream": Outcome.UPSTREAM_ERROR,  # an error event, then a proper end
    "engine-killed-messages-nonstream": Outcome.UPSTREAM_ERROR,
    "sigterm-abort-messages-stream": Outcome.UPSTREAM_ERROR,  # a message without a reason to stop
    "sigterm-abort-messages-nonstream": Outcome.UPSTREAM_ERROR,
    "sigterm-abort-responses-stream": Outcome.OK,  # "completed": nothing in it tells of the abort
    "sigterm-abort-responses-nonstream": Outcome.OK,
    "drain-new-request-0": Outcome.UPSTREAM_ERROR,  # 500
    "drain-stream": Outcome.OK,
    "drain-nonstream": Outcome.OK,
    "drain-new-stream": Outcome.OK,
    "drain-new-nonstream": Outcome.OK,
}


@pytest.mark.parametrize("name,outcome", BADLY_ENDED.items(), ids=BADLY_ENDED.keys())
def test_what_open_requests_saw_of_a_dying_engine_has_its_outcome(name: str, outcome: Outcome) -> None:
    assert outcome_of(load(f"vllm-0.32-cpu/{name}")) is outcome


OTHERS = [recording for recording in STREAMS + BODIES if recording.name.split("/")[1] not in BADLY_ENDED]


@pytest.mark.parametrize("recording", OTHERS, ids=ids(OTHERS))
def test_every_other_answer_is_ok(recording: Recording) -> None:
    expected = {
        "vllm-0.26-h200/q8b-cut": Outcome.CLIENT_GONE,
        "vllm-0.26-h200/rust-cut": Outcome.CLIENT_GONE,
        # The tokenizer of that front end gave up in the middle and said so in the stream.
        "vllm-0.26-h200/rust-toolong": Outcome.UPSTREAM_ERROR,
    }
    assert outcome_of(recording) is expected.get(recording.name, Outcome.OK)


@pytest.mark.parametrize(
    "recording",
    [recording for recording in load_all() if recording.dialect is not None and recording.status >= 400],
    ids=str,
)
def test_errors_with_a_status_are_the_client_s_or_the_engine_s(recording: Recording) -> None:
    expected = Outcome.REJECTED if recording.status < 500 else Outcome.UPSTREAM_ERROR
    assert outcome_of(recording) is expected


@pytest.mark.parametrize("recording", STREAMS, ids=ids(STREAMS))
def test_cut_anywhere_before_its_end_a_stream_is_never_ok(recording: Recording) -> None:
    summary = summary_of(recording)
    marker = {Dialect.RESPONSES: b"event: response.completed", Dialect.MESSAGES: b"event: message_stop"}
    at = recording.body.find(marker.get(dialect_of(recording), b"data: [DONE]"))
    if at == -1:
        assert not summary.terminal
        return
    for length in {0, 1, at // 2, at, at + 1, at + 13}:
        part = tapped(recording, (Read(0.0, recording.body[:length]),))
        for ending in Ending:
            assert decide_outcome(part, ending, stream=True, status=200) is not Outcome.OK


# --- flags --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name,flag",
    [
        ("chat-stream-n2", Flag.SEVERAL_CHOICES),
        ("chat-stream-tool", Flag.TOOL_CALLS),
        ("chat-stream-tool-required", Flag.TOOL_CALLS),
        ("chat-stream-logprobs", Flag.LOGPROBS),
        ("chat-stream-token-ids", Flag.TOKEN_IDS),
        ("chat-stream-emoji", Flag.SEVERAL_TOKENS_PER_CHUNK),
        ("interval4-chat-count", Flag.SEVERAL_TOKENS_PER_CHUNK),
        ("chat-stream-no-reasoning", Flag.REASONING_HIDDEN),
        ("chat-stream-plain", Flag.ESTIMATED_TOTAL),
        ("messages-stream", Flag.ESTIMATED_SPLIT),
        ("responses-stream", Flag.NO_FINISH_WINDOW),
        ("responses-stream-tool", Flag.TOOL_CALLS),
        ("messages-stream-tool", Flag.TOOL_CALLS),
        ("responses-stream-no-reasoning", Flag.REASONING_HIDDEN),
        ("chat-stream-continuous-usage", Flag.CONTINUOUS_USAGE),
    ],
)
def test_what_is_special_about_a_recording_is_flagged(name: str, flag: Flag) -> None:
    assert flag in summary_of(load(f"vllm-0.32-cpu/{name}")).flags


def test_a_plain_stream_with_usage_has_no_flag() -> None:
    assert summary_of(load("vllm-0.32-cpu/chat-stream-include-usage")).flags == ()


# --- the loader itself --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recording", load_all(), ids=str)
def test_bodies_are_what_a_real_parser_takes_them_for(recording: Recording) -> None:
    class Parsed:
        body = b""

        def on_body(self, data: bytes) -> None:
            self.body += data

    parsed = Parsed()
    parser = httptools.HttpResponseParser(parsed)
    parser.feed_data(recording.with_head().raw)
    assert parsed.body == recording.body
    if recording.reads:
        assert parser.get_status_code() == recording.status
