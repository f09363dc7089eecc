"""The tap never disturbs a stream, keeps little, and says what it could not read."""

from __future__ import annotations

import sys

import pytest

from gateway.core.stream.summary import Dialect, Flag, RequestShape, StreamSummary
from gateway.core.stream.tap import Tap
from tests.fakes.engine_events import DONE, STREAM, chat, event, role, summarise, typed, usage

WHOLE = [role(), chat(reasoning="hm"), chat(content="ok 😀"), chat(finish="stop"), usage(4, reasoning=1), DONE]


def tapped(dialect: Dialect = Dialect.CHAT, shape: RequestShape = STREAM, *, limit: int = 1 << 20) -> Tap:
    return Tap(dialect, shape, max_event_bytes=limit)


def test_asking_in_the_middle_changes_nothing_at_the_end() -> None:
    asked, left_alone = tapped(), tapped()
    for number, piece in enumerate(WHOLE):
        assert not asked.close(float(number)).terminal
        assert asked.events == number
        for tap in (asked, left_alone):
            tap.feed(piece, float(number))
    assert asked.close(9.0) == left_alone.close(9.0)
    assert asked.close(9.0).terminal
    asked.feed(event({"error": {"code": 500}}), 9.5)
    assert not asked.close(10.0).terminal


def test_every_cut_gives_the_same_summary_when_the_pieces_share_an_instant() -> None:
    whole = b": hello\r\n\r\n" + b"".join(WHOLE[:3]) + b"data: garbage\n\n" + b"".join(WHOLE[3:])
    expected = summarise(whole)
    assert expected.terminal
    for at in range(1, len(whole)):
        tap = tapped()
        tap.feed(whole[:at], 0.0)
        tap.feed(whole[at:], 0.0)
        assert tap.close(100.0) == expected, at


def test_an_event_counts_at_the_instant_that_completes_it() -> None:
    tap = tapped()
    first = chat(content="a")
    tap.feed(first[:-1], 1.0)
    tap.feed(first[-1:], 2.0)
    assert tap.close(3.0).first_token == 2.0


def test_a_stream_that_begins_in_one_burst_says_so() -> None:
    texts = [chat(content=f"word {number}") for number in range(40)]
    late = [role(), *texts[:4], *texts[4:], chat(finish="stop"), usage(42), DONE]
    for together, flagged in ((2, False), (6, True)):
        tap = tapped()
        for number, piece in enumerate(late):
            tap.feed(piece, float(max(together, number)))
        summary = tap.close(100.0)
        assert (Flag.BURST_START in summary.flags) is flagged, together
        assert summary.decode_tps is not None


def test_comments_are_no_events() -> None:
    summary = summarise(b": keep-alive\n\n", *WHOLE)
    assert (summary.events, summary.first_event) == (6, 1.0)


@pytest.mark.parametrize(
    "bad",
    [
        b"data: <html>\n\n",
        b"data:\n\n",
        b"data: {\n\n",
        b"data: []\n\n",
        b"data: 7\n\n",
        b"data: \x00\n\n",
        b'data: {"choices":7}\n\n',
        b'data: {"choices":[{"index":"0"}]}\n\n',
        b'data: {"choices":[{"delta":{"content":["a"]},"text":["a"]}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"\\ud83d"},"text":"\\ud83d"}]}\n\n',
        b'data: {"choices":' + b"[" * 5000 + b"\n\n",
    ],
)
@pytest.mark.parametrize("dialect", [Dialect.CHAT, Dialect.COMPLETIONS])
def test_what_cannot_be_read_is_counted_and_costs_nothing_else(bad: bytes, dialect: Dialect) -> None:
    summary = summarise(role(), bad, chat(content="ok", finish="stop"), DONE, dialect=dialect)
    assert (summary.bad_events, summary.flags.count(Flag.BAD_EVENTS), summary.events) == (1, 1, 4)
    assert summary.terminal


@pytest.mark.parametrize("dialect", [Dialect.RESPONSES, Dialect.MESSAGES])
@pytest.mark.parametrize("bad", [b"data: <html>\n\n", b"event: a\ndata: []\n\n", b'data: {"delta":7}\n\n'])
def test_the_other_dialects_count_it_too(bad: bytes, dialect: Dialect) -> None:
    assert summarise(bad, dialect=dialect).bad_events == 1


def test_invalid_utf8_is_replaced_as_a_client_would() -> None:
    broken = chat(content="a\x01b", finish="stop").replace(b"\\u0001", b"\xff\xfe")
    summary = summarise(role(), broken, DONE)
    assert (summary.bad_events, summary.chunks, summary.terminal) == (0, 1, True)


def test_an_event_over_the_limit_is_skipped_and_said() -> None:
    summary = summarise(role(), chat(content="x" * 5000), chat(content="ok", finish="stop"), DONE, max_event_bytes=1000)
    assert (summary.oversize_events, summary.chunks, summary.terminal) == (1, 1, True)
    assert Flag.OVERSIZE_EVENTS in summary.flags


def test_a_failure_inside_switches_it_off_and_keeps_what_was_seen() -> None:
    tap = tapped()
    tap.feed(WHOLE[0], 0.0)
    tap.feed(WHOLE[1], 1.0)
    tap.feed(WHOLE[2], "not an instant")  # type: ignore[arg-type]  # a defect of the caller
    tap.feed(WHOLE[3] + WHOLE[4] + DONE, 3.0)
    summary = tap.close(4.0)
    assert not summary.terminal
    assert Flag.TAP_DISABLED in summary.flags
    assert summary.events >= 2


def test_a_failure_at_the_end_still_gives_a_summary() -> None:
    tap = tapped()
    for number, piece in enumerate(WHOLE):
        tap.feed(piece, float(number))
    assert tap.close("not an instant") == StreamSummary(events=6, flags=(Flag.TAP_DISABLED,))  # type: ignore[arg-type]


def test_what_was_asked_for_is_flagged() -> None:
    shape = RequestShape(stream=True, n=2, logprobs=True, token_ids=True, structured=True, continuous_usage=True)
    assert summarise(*WHOLE, shape=shape).flags == (
        Flag.SEVERAL_CHOICES,
        Flag.LOGPROBS,
        Flag.TOKEN_IDS,
        Flag.STRUCTURED,
        Flag.CONTINUOUS_USAGE,
    )


@pytest.mark.parametrize("shape", [RequestShape(stream=True, logprobs=True), RequestShape(stream=True, token_ids=True)])
def test_with_logprobs_or_token_ids_there_is_a_total_rate_only(shape: RequestShape) -> None:
    summary = summarise(*WHOLE, shape=shape)
    assert summary.decode_tps is not None
    assert summary.step_time_s is not None
    assert (summary.reasoning_tps, summary.visible_tps, summary.effective_visible_tps) == (None, None, None)
    assert (summary.completion_tokens, summary.reasoning_tokens, summary.content_tokens) == (4, 1, None)


def test_chunks_of_several_tokens_are_flagged() -> None:
    stream = [role(), *[chat(content="some words of text")] * 5, chat(finish="stop"), DONE]
    assert Flag.SEVERAL_TOKENS_PER_CHUNK not in summarise(*stream[:-1], usage(8, reasoning=0), DONE).flags
    assert Flag.SEVERAL_TOKENS_PER_CHUNK in summarise(*stream[:-1], usage(9, reasoning=0), DONE).flags
    assert Flag.SEVERAL_TOKENS_PER_CHUNK not in summarise(*stream).flags, "an estimate proves nothing"


def test_hidden_reasoning_is_flagged_and_is_in_no_chunk() -> None:
    summary = summarise(role(), *[chat(content="abcd")] * 10, chat(finish="stop"), usage(53, reasoning=40), DONE)
    assert Flag.REASONING_HIDDEN in summary.flags
    assert Flag.SEVERAL_TOKENS_PER_CHUNK not in summary.flags
    assert (summary.reasoning_tokens, summary.content_tokens) == (40, 13)


def test_an_empty_stream_has_a_summary() -> None:
    assert tapped().close(5.0) == StreamSummary()


def test_a_stream_of_a_million_chunks_holds_no_more_than_one_of_a_hundred() -> None:
    def held(chunks: int) -> int:
        tap = tapped()
        tap.feed(role(), 0.0)
        piece = chat(content=" word")
        for number in range(chunks):
            tap.feed(piece, 0.005 * number + 0.0001 * (number % 7))
        answer = tap._answer
        parts = (tap, answer, answer.timeline, answer.timeline.gaps, answer.timeline.gaps._buckets, tap._framer)
        return sum(sys.getsizeof(part) for part in parts)

    assert held(20_000) == held(100)
    assert held(100) < 2500


@pytest.mark.parametrize("dialect", Dialect)
def test_every_dialect_has_a_reader(dialect: Dialect) -> None:
    first = typed("message_start", message={}) if dialect is Dialect.MESSAGES else event({"choices": [{"index": 0}]})
    assert summarise(first, dialect=dialect).choices == 1
