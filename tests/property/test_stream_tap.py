"""The tap against a slow and simple reading of the same stream, and against anything at all."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.stream.body import summarise_body
from gateway.core.stream.outcome import decide_outcome
from gateway.core.stream.summary import Dialect, Ending, Outcome, RequestShape, StreamSummary
from gateway.core.stream.tap import Tap
from gateway.core.stream.timeline import Timeline
from tests.fakes.backend import cut
from tests.fakes.engine_events import DONE, STREAM, chat, role, usage

SHAPES = st.builds(RequestShape, stream=st.just(True), n=st.integers(1, 3), logprobs=st.booleans())
BOUND = 1 / 32  # of a gap's quantile: half a bucket


@dataclass(frozen=True)
class Chunk:
    """One token-bearing chunk: the gap before it, and the text of each channel."""

    gap_s: float
    reasoning: str
    content: str


TEXT = st.text(alphabet=st.sampled_from('ab é語😀\n"\\'), max_size=8)
CHUNKS = st.builds(Chunk, gap_s=st.floats(1e-4, 10.0), reasoning=TEXT, content=TEXT).filter(
    lambda chunk: bool(chunk.reasoning or chunk.content)
)


def played(chunks: list[Chunk], *, completion: int, step_s: float) -> tuple[StreamSummary, list[float]]:
    """Play a whole stream; return its summary and the instant of each chunk."""
    tap = Tap(Dialect.CHAT, STREAM, max_event_bytes=1 << 20)
    tap.feed(role(), 0.0)
    now = 0.0
    instants: list[float] = []
    for chunk in chunks:
        now += chunk.gap_s
        instants.append(now)
        tap.feed(chat(reasoning=chunk.reasoning, content=chunk.content), now)
    tap.feed(chat(finish="stop"), now + step_s)
    tap.feed(usage(completion) + DONE, now + step_s)
    return tap.close(now + step_s), instants


@settings(max_examples=300, deadline=None)
@given(chunks=st.lists(CHUNKS, min_size=2, max_size=30), more=st.integers(0, 50))
def test_instants_counts_and_gaps_are_those_of_a_simple_reading(chunks: list[Chunk], more: int) -> None:
    completion = len(chunks) + 1 + more
    summary, instants = played(chunks, completion=completion, step_s=0.5)
    visible = [now for now, chunk in zip(instants, chunks, strict=True) if chunk.content]
    assert (summary.first_token, summary.last_token) == (instants[0], instants[-1])
    assert summary.first_visible == (visible[0] if visible else None)
    assert (summary.window_start, summary.window_end) == (0.0, instants[-1] + 0.5)
    assert summary.chunks == len(chunks)
    assert summary.decode_tps == pytest.approx((completion - 1) / (instants[-1] + 0.5))
    gaps = sorted(later - earlier for earlier, later in pairwise(instants))
    assert summary.gap_max_s == gaps[-1]
    assert summary.gap_p50_s == pytest.approx(gaps[(len(gaps) + 1) // 2 - 1], rel=BOUND)
    assert summary.gap_p99_s == pytest.approx(gaps[-1], rel=BOUND)


@settings(max_examples=300, deadline=None)
@given(chunks=st.lists(CHUNKS, min_size=2, max_size=30))
def test_a_split_by_length_gives_every_token_to_one_channel(chunks: list[Chunk]) -> None:
    summary, _ = played(chunks, completion=1000, step_s=0.0)
    reasoning = sum(len(chunk.reasoning.encode()) for chunk in chunks)
    content = sum(len(chunk.content.encode()) for chunk in chunks)
    assert summary.reasoning_tokens == round(1000 * reasoning / (reasoning + content))
    assert summary.content_tokens == 1000 - summary.reasoning_tokens


@settings(max_examples=300, deadline=None)
@given(chunks=st.lists(CHUNKS, min_size=1, max_size=30))
def test_the_channels_share_out_the_time_up_to_the_last_token(chunks: list[Chunk]) -> None:
    timeline = Timeline()
    timeline.begin(0.0)
    now = 0.0
    for chunk in chunks:
        now += chunk.gap_s
        timeline.chunk(now, reasoning=len(chunk.reasoning.encode()), content=len(chunk.content.encode()))
    assert timeline.reasoning_s + timeline.content_s == pytest.approx(now)


ANYTHING = st.one_of(
    st.binary(max_size=300),
    st.lists(
        st.sampled_from(
            [
                role(),
                chat(reasoning="a"),
                chat(content="b", index=1),
                chat(finish="stop"),
                chat(finish="abort"),
                usage(3, reasoning=1),
                DONE,
                b"\n",
                b": ping\n\n",
                b'data: {"error":{"code":500}}\n\n',
                b'data: {"choices":[{"index":0,"text":"x","finish_reason":"length"}]}\n\n',
                b'event: response.completed\ndata: {"response":{"status":"completed"}}\n\n',
                b'data: {"type":"response.output_text.delta","delta":"x"}\n\n',
                b'data: {"type":"message_start","message":{"usage":{"input_tokens":3,"output_tokens":0}}}\n\n',
                b'data: {"type":"content_block_delta","delta":{"text":"x"}}\n\n',
                b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}\n\n',
                b'data: {"type":"message_stop"}\n\n',
                b'data: {"choices":[{"index":-99999999999999999999,"delta":{"content":"x"}}]}\n\n',
                b'data: {"choices":[],"usage":{"completion_tokens":99999999999999999999}}\n\n',
                b'data: {"choices":[],"usage":{"completion_tokens":1e999}}\n\n',
                b'data: {"choices":[],"metrics":{"mean_itl_ms":-1e300}}\n\n',
                b"data: \xff\xfe\n\n",
                b"data: {",
            ]
        ),
        max_size=25,
    ).map(b"".join),
)


@settings(max_examples=800, deadline=None)
@given(
    data=ANYTHING,
    dialect=st.sampled_from(Dialect),
    shape=SHAPES,
    cuts=st.lists(st.integers(0, 1000), max_size=10),
    step_s=st.sampled_from([0.0, 1e-9, 0.01, 1e6]),
)
def test_anything_gives_one_summary_that_can_travel(
    data: bytes, dialect: Dialect, shape: RequestShape, cuts: list[int], step_s: float
) -> None:
    whole = Tap(dialect, shape, max_event_bytes=200)
    whole.feed(data, 0.0)
    expected = whole.close(0.0)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(expected), type=StreamSummary) == expected
    at_once, in_time = (Tap(dialect, shape, max_event_bytes=200) for _ in range(2))
    for number, piece in enumerate(cut(data, cuts)):
        at_once.feed(piece, 0.0)
        in_time.feed(piece, number * step_s)
    assert at_once.close(0.0) == expected
    timed = in_time.close(1e9)
    assert "tap_disabled" not in timed.flags
    for name in ("events", "chunks", "bad_events", "completion_tokens", "terminal", "finish_reasons", "error"):
        assert getattr(timed, name) == getattr(expected, name)
    msgspec.json.encode(timed)


@settings(max_examples=300, deadline=None)
@given(data=ANYTHING, dialect=st.sampled_from(Dialect))
def test_anything_as_a_body_gives_a_summary_that_can_travel(data: bytes, dialect: Dialect) -> None:
    payload = data.removeprefix(b"data: ").split(b"\n")[0]
    summary = summarise_body(dialect, payload, RequestShape(stream=False))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(summary), type=StreamSummary) == summary


@settings(max_examples=300, deadline=None)
@given(data=ANYTHING, dialect=st.sampled_from(Dialect), ending=st.sampled_from(Ending), status=st.integers(0, 599))
def test_ok_means_that_the_engine_ended_the_stream_itself(
    data: bytes, dialect: Dialect, ending: Ending, status: int
) -> None:
    tap = Tap(dialect, STREAM, max_event_bytes=1000)
    tap.feed(data, 0.0)
    summary = tap.close(0.0)
    if decide_outcome(summary, ending, stream=True, status=status) is Outcome.OK:
        assert summary.done_marker
        assert summary.finish_reasons
        assert summary.error is None
        assert "abort" not in summary.finish_reasons
