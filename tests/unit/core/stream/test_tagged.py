"""The tap's reader for engines whose reasoning stands in the text."""

from __future__ import annotations

from gateway.core.stream.answer import Answer
from gateway.core.stream.delivery.mode import ThinkTags
from gateway.core.stream.summary import Dialect, Exactness, Flag, StreamSummary
from gateway.core.stream.tagged import TaggedReader, tagged_bytes
from gateway.core.stream.tap import Tap
from tests.fakes.engine_events import DONE, STREAM, chat, role, text, usage

TOOL = [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]


def seen(*events: bytes, dialect: Dialect = Dialect.CHAT, opened: bool = False) -> StreamSummary:
    """One event a second."""
    tap = Tap(dialect, STREAM, max_event_bytes=1 << 20, tags=ThinkTags(opened=opened))
    for number, it in enumerate(events):
        tap.feed(it, float(number))
    return tap.close(100.0)


def test_channels_are_told_apart_by_their_tags_and_the_split_is_an_estimate() -> None:
    summary = seen(
        role(),
        chat(content="<think>"),
        chat(content="abcd"),
        chat(content="</think>ab"),
        chat(finish="stop"),
        usage(9),
        DONE,
    )
    assert (summary.completion_tokens, summary.total_exactness) == (9, Exactness.EXACT)
    assert (summary.reasoning_tokens, summary.content_tokens) == (6, 3)
    assert (summary.split_exactness, summary.flags) == (
        Exactness.ESTIMATED,
        (Flag.ESTIMATED_SPLIT, Flag.SEVERAL_TOKENS_PER_CHUNK),
    )
    assert (summary.first_token, summary.first_visible, summary.chunks) == (2.0, 3.0, 2)
    assert (summary.finish_reasons, summary.terminal) == (("stop",), True)


def test_completions_are_read_the_same_way() -> None:
    summary = seen(
        text("why</th"), text("ink>"), text("so", finish="length"), DONE, dialect=Dialect.COMPLETIONS, opened=True
    )
    assert (summary.first_token, summary.first_visible) == (0.0, 2.0)
    assert summary.finish_reasons == ("length",)


def test_what_is_held_counts_when_the_choice_ends_and_fields_count_as_ever() -> None:
    summary = seen(role(), chat(reasoning="ab", content="<th"), chat(finish="stop"), usage(5), DONE)
    assert (summary.first_token, summary.first_visible) == (1.0, 2.0)
    assert (summary.reasoning_tokens, summary.content_tokens) == (2, 3)


def test_tools_errors_and_choices_without_number_are_read_as_ever() -> None:
    summary = seen(role(), chat(tool_calls=TOOL), chat(finish="tool_calls"), DONE)
    assert Flag.TOOL_CALLS in summary.flags
    assert seen(role(), b'data: {"error":{"code":500}}\n\n', DONE).error is not None
    answer = Answer()
    answer.choices = dict.fromkeys(range(65_536), False)
    TaggedReader(answer, ThinkTags()).read(chat(content="<think>é", index=70_000)[6:-2], 0.0, "")
    assert (answer.timeline.content_bytes, answer.unfollowed) == (9, True)


def test_a_whole_text_is_measured_without_its_tags() -> None:
    assert tagged_bytes("<think>é</think>so</th", ThinkTags()) == (2, 6)
