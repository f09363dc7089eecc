"""The counts of keys: by model, today and within a minute, and what is said when some are missing."""

from __future__ import annotations

from gateway.core.admission.quota import DAY_S
from gateway.core.admission.usage import UsageBook, UsageCount, UsageRow

NOON = DAY_S * 100.5


def count(requests: int = 1, prompt: int = 2, completion: int = 3) -> UsageCount:
    return UsageCount(requests=requests, prompt_tokens=prompt, completion_tokens=completion)


def test_counts_are_kept_by_model_and_for_the_minute() -> None:
    book = UsageBook()
    book.add("k", "m", count(), now=0.0, now_wall=NOON)
    book.add("k", "n", count(), now=50.0, now_wall=NOON + 50)
    book.add("other", "m", count(), now=50.0, now_wall=NOON + 50)
    found = book.of("k", now=61.0, now_wall=NOON + 61)
    assert found.today == count(2, 4, 6)
    assert found.today.tokens == 10
    assert found.models == {"m": count(), "n": count()}
    assert (found.minute_requests, found.minute_tokens) == (1, 5)
    assert found.since_wall == DAY_S * 100
    assert found.complete


def test_midnight_begins_anew_and_the_minute_goes_on() -> None:
    book = UsageBook(complete=False)
    late = DAY_S * 101 - 1
    book.add("k", "m", count(), now=0.0, now_wall=late)
    assert not book.of("k", now=0.0, now_wall=late).complete
    found = book.of("k", now=2.0, now_wall=late + 2)
    assert found.today == UsageCount()
    assert found.minute_requests == 1
    assert found.complete, "nothing of this day was missed"


def test_what_the_history_knows_comes_first() -> None:
    book = UsageBook(complete=False)
    book.begin([UsageRow(key_id="k", model="m", count=count(5, 10, 20))], now_wall=NOON)
    book.add("k", "m", count(), now=0.0, now_wall=NOON)
    found = book.of("k", now=0.0, now_wall=NOON)
    assert found.today == count(6, 12, 23)
    assert found.complete


def test_a_key_that_was_never_used_has_used_nothing() -> None:
    assert UsageBook().of("k", now=0.0, now_wall=NOON).today == UsageCount()


def test_reasoning_is_counted_and_a_minute_says_when_it_will_be_empty() -> None:
    book = UsageBook()
    thought = UsageCount(requests=1, prompt_tokens=2, completion_tokens=3, reasoning_tokens=1)
    book.add("k", "m", thought, now=0.0, now_wall=NOON)
    book.add("k", "m", thought, now=20.0, now_wall=NOON + 20)
    found = book.of("k", now=30.0, now_wall=NOON + 30)
    assert (found.today.reasoning_tokens, found.today.tokens) == (2, 10)
    assert found.minute_empty_s == 50.0
    assert book.of("k", now=81.0, now_wall=NOON + 81).minute_empty_s == 0.0
