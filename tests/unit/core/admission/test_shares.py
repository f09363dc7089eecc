"""Shares of a limit: who is told what, and when not.  That they never add up to too much is in the property tests."""

from __future__ import annotations

from gateway.core.admission.shares import AWAIT_S, ShareBook


class Book:
    """A share book, and workers who do at once what they are told."""

    def __init__(self, workers: int, *, limit: int = 100, inherited: bool = False) -> None:
        self.book = ShareBook(workers=workers, inherited=inherited, now=0.0)
        self.limit = limit
        self.shares: dict[int, int | None] = {}

    def come(self, *slots: int, now: float = 0.0, share: int | None = None) -> None:
        for slot in slots:
            self.book.join(slot, slot, now=now)
            self.say(slot, share=share)

    def say(self, slot: int, *, holding: int = 0, share: int | None = None) -> None:
        self.shares[slot] = share
        self.book.beat(slot, holding=holding, share=share)

    def out(self, *, fresh: set[int] | None = None, now: float = 0.0) -> dict[int, int | None]:
        """Share out once; what each worker is told."""
        self.book.share_out(self.limit, fresh=set(self.shares) if fresh is None else fresh, now=now)
        return {slot: self.book.told(slot) for slot in self.shares}


def test_one_worker_has_the_whole_limit_at_its_first_word() -> None:
    book = Book(1)
    book.book.join(0, 0, now=0.0)
    assert book.book.told(0) is None
    assert book.book.beat(0, holding=0, share=None)
    assert book.out(fresh={0}) == {}
    assert book.book.told(0) == 100
    assert not book.book.beat(0, holding=0, share=100)


def test_workers_that_are_still_to_come_have_their_part_left() -> None:
    book = Book(4)
    book.come(0)
    assert book.out() == {0: 25}
    book.say(0, share=25)
    book.come(1, 2, 3)
    assert book.out() == {0: 25, 1: 25, 2: 25, 3: 25}


def test_a_worker_that_never_comes_is_not_waited_for_for_ever() -> None:
    book = Book(2)
    book.come(0)
    assert book.out() == {0: 50}
    book.say(0, share=50)
    assert book.out(now=AWAIT_S - 1) == {0: 50}
    book.say(0, holding=30, share=50)
    assert book.out(now=AWAIT_S) == {0: 100}


def test_nobody_is_told_anything_as_long_as_all_have_room() -> None:
    book = Book(2)
    book.come(0, 1, share=50)
    for holding in (0, 5, 20, 33):
        book.say(0, holding=holding, share=50)
        assert book.out() == {0: 50, 1: 50}


def test_a_worker_that_runs_full_is_raised_only_when_the_other_has_confirmed_to_be_lowered() -> None:
    book = Book(2)
    book.come(0, 1, share=50)
    book.say(0, holding=50, share=50)
    assert book.out() == {0: 50, 1: 25}
    assert book.out() == {0: 50, 1: 25}, "not confirmed"
    book.say(1, share=25)
    assert book.out() == {0: 75, 1: 25}


def test_what_a_worker_holds_counts_even_beyond_its_share() -> None:
    book = Book(2)
    book.come(0, 1, share=50)
    book.say(0, holding=60, share=40)
    book.say(1, holding=10, share=10)
    assert book.out() == {0: 75, 1: 25}, "70 are held, of the other 30 each gets half"


def test_a_lower_limit_takes_from_everybody_what_is_not_held() -> None:
    book = Book(2)
    book.come(0, 1, share=50)
    book.say(0, holding=4, share=50)
    book.limit = 10
    assert book.out() == {0: 7, 1: 3}


def test_a_silent_worker_is_lowered_to_what_it_holds_but_counts_in_full_until_it_confirms() -> None:
    book = Book(2)
    book.come(0, 1, share=50)
    book.say(0, holding=10, share=50)
    book.say(1, holding=50, share=50)
    assert book.out(fresh={1}) == {0: 10, 1: 50}
    book.say(0, holding=10, share=10)
    assert book.out(fresh={1}) == {0: 10, 1: 90}


def test_a_worker_that_left_counts_until_its_successor_is_there() -> None:
    book = Book(2)
    book.come(0, 1, share=50)
    book.book.leave(1, now=1.0)
    del book.shares[1]
    book.say(0, holding=50, share=50)
    assert book.out(now=2.0) == {0: 50}
    book.book.join("successor", 1, now=3.0)
    book.book.beat("successor", holding=0, share=None)
    book.book.share_out(100, fresh={0, "successor"}, now=3.0)
    assert (book.book.told(0), book.book.told("successor")) == (75, 25)


def test_a_worker_that_left_and_has_no_successor_counts_for_a_while_only() -> None:
    book = Book(2)
    book.come(0, 1, share=50)
    book.book.leave(1, now=1.0)
    del book.shares[1]
    book.say(0, holding=50, share=50)
    assert book.out(now=1.0 + AWAIT_S) == {0: 100}


def test_a_worker_whose_successor_is_there_already_leaves_nothing_behind() -> None:
    book = Book(1)
    book.come(0, share=100)
    book.book.join("successor", 0, now=1.0)
    book.book.beat("successor", holding=0, share=None)
    book.book.share_out(100, fresh={0, "successor"}, now=1.0)
    assert book.book.told("successor") == 0
    book.book.leave(0, now=2.0)
    book.book.share_out(100, fresh={"successor"}, now=2.0)
    assert book.book.told("successor") == 100


def test_control_that_begins_anew_raises_nobody_before_it_knows_all() -> None:
    book = Book(2, inherited=True)
    book.come(0, share=30)
    book.say(0, holding=30, share=30)
    assert book.out() == {0: 30}
    book.book.join(1, 1, now=1.0)
    assert book.out() == {0: 30}, "the other has not said what it holds"
    book.say(1, holding=60, share=60)
    assert book.out() == {0: 35, 1: 65}


def test_what_was_told_over_a_connection_that_broke_is_told_anew() -> None:
    book = Book(2)
    book.come(0, 1, share=50)
    book.say(0, holding=50, share=50)
    assert book.out() == {0: 50, 1: 25}
    book.book.leave(1, now=1.0)
    book.come(1, now=2.0, share=50)
    assert book.book.told(1) == 50
    assert book.out(now=2.0) == {0: 50, 1: 25}
