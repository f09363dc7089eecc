"""Token counts: when the engine is believed, and what is said when it is not."""

from __future__ import annotations

import pytest

from gateway.core.stream.chunk import Usage
from gateway.core.stream.counts import TextLengths, TokenCounts, count_tokens, is_plausible
from gateway.core.stream.summary import Exactness

HALF = TextLengths(reasoning=400, content=400, chunks=200)


def counted(
    usage: Usage | None, lengths: TextLengths = HALF, *, current: bool = True, divisible: bool = True
) -> TokenCounts:
    return count_tokens(usage, lengths, current=current, divisible=divisible)


def test_plausible_usage_is_taken_as_it_is() -> None:
    counts = counted(Usage(prompt=7, cached=4, completion=203, reasoning=100))
    assert counts == TokenCounts(
        prompt=7,
        cached=4,
        completion=203,
        reasoning=100,
        content=103,
        total=Exactness.EXACT,
        split=Exactness.EXACT,
    )


@pytest.mark.parametrize(
    "reasoning", [None, 0, 204, 5, 200], ids=["absent", "zero", "over total", "far low", "far high"]
)
def test_an_absent_or_implausible_reasoning_count_is_replaced_by_the_share_of_the_text(reasoning: int | None) -> None:
    counts = counted(Usage(completion=203, reasoning=reasoning))
    assert (counts.completion, counts.reasoning, counts.content) == (203, 102, 101)
    assert (counts.total, counts.split) == (Exactness.EXACT, Exactness.ESTIMATED)


def test_no_reasoning_and_no_count_of_it_is_an_exact_zero() -> None:
    counts = counted(Usage(completion=100), TextLengths(content=400, chunks=99))
    assert (counts.reasoning, counts.content, counts.split) == (0, 100, Exactness.EXACT)


def test_reasoning_that_is_counted_but_not_sent_is_believed_and_marked() -> None:
    counts = counted(Usage(completion=83, reasoning=40), TextLengths(content=150, chunks=40))
    assert (counts.reasoning, counts.content, counts.split, counts.reasoning_hidden) == (40, 43, Exactness.EXACT, True)


@pytest.mark.parametrize(
    "reasoning,completion,lengths,expected",
    [
        (40, 83, TextLengths(reasoning=158, content=154), True),  # markers and end token on the content side
        (32, 300, TextLengths(reasoning=150, content=1000), True),  # prose against numbers
        (52, 112, TextLengths(reasoning=250, content=90), True),  # emoji of several tokens
        (15, 16, TextLengths(reasoning=60), True),  # cut inside the reasoning, opening marker unseen
        (16, 20, TextLengths(reasoning=60), True),  # four tokens of nothing
        (15, 20, TextLengths(reasoning=60), False),  # five
        (100, 104, TextLengths(reasoning=400, content=4), True),  # a one-word answer
        (104, 104, TextLengths(reasoning=400, content=400), False),  # an end that was not counted
        (0, 100, TextLengths(reasoning=4, content=400), False),  # text of no tokens
        (0, 100, TextLengths(content=400), True),
        (101, 100, TextLengths(content=400), False),
    ],
)
def test_plausibility_allows_a_factor_of_four_and_four_tokens(
    reasoning: int, completion: int, lengths: TextLengths, expected: bool
) -> None:
    assert is_plausible(reasoning, completion, lengths=lengths, divisible=True) is expected


def test_an_indivisible_answer_keeps_the_engine_s_count_and_has_no_remainder() -> None:
    tool = TextLengths(reasoning=300, tool=17, chunks=70)
    counts = counted(Usage(completion=78, reasoning=52), tool, divisible=False)
    assert (counts.reasoning, counts.content, counts.split) == (52, None, Exactness.EXACT)


@pytest.mark.parametrize("reasoning", [None, 0, 79])
def test_an_indivisible_answer_is_never_split_by_text(reasoning: int | None) -> None:
    counts = counted(Usage(completion=78, reasoning=reasoning), divisible=False)
    assert (counts.completion, counts.reasoning, counts.content) == (78, None, None)
    assert (counts.total, counts.split) == (Exactness.EXACT, Exactness.UNKNOWN)


@pytest.mark.parametrize(
    "usage,current",
    [(None, True), (Usage(prompt=7), True), (Usage(completion=5), False), (Usage(completion=0), True)],
    ids=["no usage", "usage without it", "text after usage", "zero beside text"],
)
def test_without_a_usable_total_everything_is_estimated_from_the_text(usage: Usage | None, current: bool) -> None:
    counts = counted(usage, current=current)
    assert (counts.completion, counts.reasoning, counts.content) == (200, 100, 100)
    assert (counts.total, counts.split) == (Exactness.ESTIMATED, Exactness.ESTIMATED)
    assert counts.prompt == (usage.prompt if usage is not None else None)


def test_an_estimate_is_never_below_one_token_a_chunk() -> None:
    assert counted(None, TextLengths(content=100, chunks=80)).completion == 80
    assert counted(None, TextLengths(content=1)).completion == 1


def test_an_indivisible_estimate_has_a_total_only() -> None:
    counts = counted(None, divisible=False)
    assert (counts.completion, counts.reasoning, counts.content) == (200, None, None)
    assert (counts.total, counts.split) == (Exactness.ESTIMATED, Exactness.UNKNOWN)


def test_no_text_and_no_usage_is_unknown() -> None:
    counts = counted(Usage(prompt=7, cached=1), TextLengths())
    assert counts == TokenCounts(prompt=7, cached=1)


def test_an_exact_zero_is_a_count() -> None:
    counts = counted(Usage(completion=0), TextLengths())
    assert (counts.completion, counts.reasoning, counts.content, counts.total) == (0, 0, 0, Exactness.EXACT)


def test_tool_text_counts_in_an_estimated_total() -> None:
    counts = counted(None, TextLengths(tool=400, chunks=3), divisible=False)
    assert counts.completion == 100
