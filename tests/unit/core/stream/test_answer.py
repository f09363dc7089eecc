"""What is kept of one answer, within bounds."""

from __future__ import annotations

from msgspec import Raw

from gateway.core.stream.answer import Answer
from gateway.core.stream.chunk import ABSENT
from gateway.core.stream.summary import EngineError


def test_an_answer_ends_well_when_every_choice_has_a_reason() -> None:
    answer = Answer()
    assert not answer.ended_well(1)
    answer.begin(0)
    answer.begin(1)
    answer.finish(0, "stop")
    assert not answer.ended_well(1)
    answer.finish(1, "length")
    assert answer.ended_well(1)
    assert answer.ended_well(2)
    assert not answer.ended_well(3), "a choice that was asked for never came"
    assert answer.reasons == ["stop", "length"]


def test_a_choice_ends_once() -> None:
    answer = Answer()
    answer.begin(0)
    answer.begin(1)
    answer.finish(0, "stop")
    answer.finish(0, "stop")
    assert not answer.ended_well(1)


def test_abort_cancellation_and_error_are_no_good_end() -> None:
    for reason in ("abort", "cancelled"):
        answer = Answer()
        answer.begin(0)
        answer.finish(0, reason)
        assert not answer.ended_well(1)
        assert answer.reasons == [reason]
    answer = Answer()
    answer.begin(0)
    answer.finish(0, "stop")
    answer.fail(b'{"code":1}')
    answer.fail(b'{"code":2}')
    assert not answer.ended_well(1)
    assert answer.error == EngineError(code="1")


def test_reasons_are_kept_once_each_and_not_without_end() -> None:
    answer = Answer()
    for index in range(20):
        answer.begin(index)
        answer.finish(index, f"reason {index // 2}" + "x" * 100)
    assert len(answer.reasons) == len(set(answer.reasons)) == 8
    assert max(map(len, answer.reasons)) == 64


def test_more_choices_than_can_be_followed_are_never_called_finished() -> None:
    answer = Answer()
    for index in range(65_537):
        answer.begin(index)
        answer.finish(index, "stop")
    assert len(answer.choices) == 65_536
    assert not answer.ended_well(1)


def test_the_last_counts_are_kept_with_what_they_cover() -> None:
    answer = Answer()
    answer.take(usage=Raw(b"1"), metrics=ABSENT, error=ABSENT, whole=False)
    answer.timeline.chunk(1.0, content=1)
    answer.take(usage=Raw(b"2"), metrics=Raw(b"3"), error=ABSENT, whole=True)
    answer.take(usage=Raw(b"null"), metrics=ABSENT, error=Raw(b"null"), whole=False)
    assert (answer.usage, answer.metrics, answer.error) == (Raw(b"2"), Raw(b"3"), None)
    assert (answer.usage_after_chunks, answer.usage_is_whole) == (1, True)
