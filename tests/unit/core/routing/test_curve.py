"""How fast a stream is among so many: learnt from counters, predicted."""

from __future__ import annotations

import pytest

from gateway.core.routing.curve import (
    CHANGED,
    FRESH_S,
    OLD_S,
    SLOWING_ABOVE,
    SLOWING_BELOW,
    Curve,
    CurveBook,
    CurvePoint,
    differs,
    predict,
)
from gateway.core.routing.reading import EngineReading


def points(*pairs: tuple[float, float]) -> Curve:
    return tuple(CurvePoint(streams=streams, tps=tps) for streams, tps in pairs)


CURVE = points((1, 100.0), (4, 60.0), (16, 20.0))


@pytest.mark.parametrize("streams, tps", [(1, 100.0), (2, 80.0), (4, 60.0), (8, 40.0), (16, 20.0)])
def test_between_points_it_is_interpolated_in_the_logarithm(streams: int, tps: float) -> None:
    assert predict(CURVE, streams) == pytest.approx(tps)


def test_outside_of_the_points_it_is_guessed_high_so_that_it_is_tried() -> None:
    assert predict(CURVE, 32) == pytest.approx(20.0 / 2**SLOWING_ABOVE)
    assert predict(points((8, 40.0)), 1) == pytest.approx(40.0 * 8**SLOWING_BELOW)


def test_nothing_measured_is_nothing_predicted() -> None:
    assert predict((), 1) is None


def learn(*readings: tuple[float, float, float | None], book: CurveBook | None = None) -> CurveBook:
    """A book that has read (at, tokens so far, running) of an engine that tells no time between tokens."""
    book = book or CurveBook()
    for at, tokens, running in readings:
        book.add(EngineReading(read_at=at, generation_tokens=tokens, running=running))
    return book


class Engine:
    """An engine whose counters go on, and the book that reads them."""

    def __init__(self) -> None:
        self.book = CurveBook()
        self.at = self.tokens = self.decode_s = 0.0

    def read(self, running: float, *, waiting: float = 0.0, ours: int | None = None) -> None:
        reading = EngineReading(
            read_at=self.at, generation_tokens=self.tokens, running=running, waiting=waiting, decode_s=self.decode_s
        )
        self.book.add(reading, ours=ours)

    def run(self, running: float, *, tps: float, waiting: float = 0.0, ours: int | None = None) -> None:
        """Two seconds in which ``running`` streams get ``tps`` each, looked at before and after."""
        self.read(running, waiting=waiting, ours=ours)
        self.at += 2.0
        self.tokens += 2.0 * running * tps
        self.decode_s += 2.0 * running
        self.read(running, waiting=waiting, ours=ours)

    def tps(self, streams: int) -> float:
        predicted = predict(self.book.curve(), streams)
        assert predicted is not None
        return predicted


# --- what counts ---


def test_a_rate_is_tokens_over_the_time_between_tokens_whatever_happened_between_the_readings() -> None:
    book = CurveBook()
    book.add(EngineReading(read_at=0.0, generation_tokens=0.0, running=0.0, decode_s=0.0))
    book.add(EngineReading(read_at=10.0, generation_tokens=100.0, running=2.0, decode_s=2.0))
    assert book.curve() == points((1, 50.0)), "idle for most of the time, which is not the stream's pace"


def test_without_that_time_a_reading_counts_where_about_as_many_ran_before_as_after() -> None:
    book = learn((0, 0, 8), (2, 960, 8), (4, 2000, 11), (6, 2100, None), (8, 3500, 8))
    assert book.curve() == points((8, 60.0))
    (point,) = learn((0, 0, 8), (2, 1080, 10)).curve()
    assert (round(point.streams, 9), point.tps) == (9, 60.0)


def test_requests_that_wait_are_streams_that_get_nothing_yet() -> None:
    engine = Engine()
    engine.run(8, tps=30.0, waiting=24)
    assert engine.book.curve() == points((32, 7.5))


@pytest.mark.parametrize("tokens", [0, 31, -5])
def test_too_few_tokens_say_nothing(tokens: float) -> None:
    assert learn((0, 100, 4), (2, 100 + tokens, 4)).curve() == ()


@pytest.mark.parametrize("running", [0, None])
def test_nobody_running_says_nothing(running: float | None) -> None:
    assert learn((0, 0, running), (2, 480, running)).curve() == ()


# --- averages ---


def test_powers_of_two_share_a_bucket_whose_place_is_the_mean_of_what_was_seen() -> None:
    book = learn((0, 0, 4), (2, 480, 4))
    learn((4, 1000, 7), (6, 1560, 7), book=book)
    (point,) = book.curve()
    assert point.tps == pytest.approx((60 + 40) / 2)
    assert point.streams == pytest.approx((4 * 7) ** 0.5)


def test_an_average_moves_slowly_with_what_differs_little() -> None:
    book = CurveBook()
    tokens = 0.0
    for at in range(40):
        tokens += 200.0 if at < 20 else 170.0
        learn((2.0 * at, tokens, 1), book=book)
        if at == 20:
            assert book.curve()[0].tps == pytest.approx(97.0)
    assert book.curve()[0].tps == pytest.approx(85.0, rel=0.02)


# --- engines that change ---


def measured() -> Engine:
    """One that gives 100 tokens a second to each of 1 and of 2 streams, and 50 to each of 16."""
    engine = Engine()
    for running, tps in ((1, 100.0), (2, 100.0), (16, 50.0)) * 5:
        engine.run(running, tps=tps)
    return engine


@pytest.mark.parametrize("factor", [0.5, 0.7, 1.5, 3.0])
def test_two_surprises_in_a_row_take_the_whole_curve_along(factor: float) -> None:
    engine = measured()
    engine.run(16, tps=50.0 * factor)
    assert (engine.tps(1), engine.tps(16)) == (100.0, 50.0), "one alone may be an accident"
    engine.run(16, tps=50.0 * factor)
    assert engine.tps(1) == pytest.approx(100.0 * factor)
    assert engine.tps(16) == pytest.approx(50.0 * factor)


def test_a_surprise_that_is_not_confirmed_counts_for_nothing() -> None:
    engine = measured()
    for tps in (20.0, 120.0, 20.0, 50.0):
        engine.run(16, tps=tps)
    assert (engine.tps(1), engine.tps(16)) == (100.0, 50.0)


def test_what_was_measured_since_a_change_is_not_touched_by_a_further_surprise_elsewhere() -> None:
    engine = measured()
    for _ in range(2):
        engine.run(1, tps=50.0)
    for _ in range(2):  # a hot engine loses less where there are more streams
        engine.run(16, tps=40.0)
    assert engine.tps(1) == pytest.approx(50.0)
    assert engine.tps(16) == pytest.approx(40.0)


def test_surprises_of_one_place_add_up_although_others_do_not_surprise_between_them() -> None:
    engine = measured()
    for _ in range(2):
        engine.run(1, tps=100.0)
        engine.run(16, tps=25.0)
    assert engine.tps(16) == pytest.approx(25.0)


def test_readings_between_which_requests_came_or_went_neither_surprise_nor_calm() -> None:
    engine = measured()
    engine.run(16, tps=25.0)
    engine.at, engine.tokens, engine.decode_s = engine.at + 2, engine.tokens + 32 * 50.0, engine.decode_s + 32
    engine.read(28)
    engine.at, engine.tokens, engine.decode_s = engine.at + 2, engine.tokens + 32 * 50.0, engine.decode_s + 32
    engine.read(16)
    engine.run(16, tps=25.0)
    assert engine.tps(16) < 30.0


def test_where_nothing_was_measured_nothing_surprises() -> None:
    engine = measured()
    for _ in range(3):
        engine.run(128, tps=5.0)
    assert (engine.tps(1), engine.tps(16), engine.tps(128)) == (100.0, 50.0, 5.0)


def test_what_was_not_measured_for_a_while_is_old_and_the_next_rate_is_believed_at_once() -> None:
    engine = measured()
    assert not engine.book.is_old(now=engine.at + OLD_S)
    assert engine.book.is_old(now=engine.at + OLD_S + 1)
    assert not CurveBook().is_old(now=1e6)
    engine.at += OLD_S + 1
    engine.run(1, tps=200.0)
    assert engine.tps(1) == pytest.approx(200.0)
    assert engine.tps(16) == pytest.approx(100.0)


def test_a_rate_above_the_high_guess_for_what_was_never_measured_shows_that_all_of_it_is_better() -> None:
    """As when an engine that was given up when it became slow is tried with a single stream, and is well again."""
    engine = Engine()
    for _ in range(3):
        engine.run(2, tps=38.0)
    engine.at += OLD_S + 1
    engine.run(1, tps=80.0)
    assert engine.tps(1) == 80.0
    assert 60.0 < engine.tps(2) < 80.0


def test_a_rate_below_that_guess_is_what_was_to_be_expected() -> None:
    engine = Engine()
    for _ in range(3):
        engine.run(32, tps=100.0)
    engine.at += OLD_S + 1
    engine.run(1, tps=110.0)
    assert (engine.tps(1), engine.tps(32)) == (110.0, 100.0)


def test_a_part_that_is_much_older_than_the_newest_is_forgotten_and_an_idle_engine_s_curve_is_kept() -> None:
    engine = measured()
    engine.at += FRESH_S - 10
    engine.run(1, tps=100.0)
    assert [it.streams for it in engine.book.curve()] == pytest.approx([1, 2, 16])
    engine.at += 10
    engine.run(1, tps=100.0)
    assert [it.streams for it in engine.book.curve()] == [1]


def test_all_of_it_goes_with_the_process() -> None:
    engine = measured()
    engine.run(9, tps=60.0, ours=0)
    engine.book.forget()
    assert (engine.book.curve(), engine.book.strangers()) == ((), 0)
    engine.at, engine.tokens = engine.at + 2, engine.tokens + 400
    engine.read(1)
    assert engine.book.curve() == ()


# --- strangers ---


def test_strangers_are_what_runs_beyond_ours_in_the_middle_of_the_last_readings() -> None:
    engine = Engine()
    assert engine.book.strangers() == 0
    for ours in (2, 3, 2, 9, 0, 2, 2):
        engine.run(10, tps=50.0, waiting=2, ours=ours)
    assert engine.book.strangers() == 10


@pytest.mark.parametrize("running, ours", [(5, 4), (5, 5), (5, 9)])
def test_one_more_or_some_fewer_are_the_moment_between_two_looks(running: int, ours: int) -> None:
    engine = Engine()
    engine.run(running, tps=50.0, ours=ours)
    assert engine.book.strangers() == 0


def test_a_curve_is_worth_telling_when_it_moved_by_more_than_a_few_percent() -> None:
    assert not differs(CURVE, CURVE)
    assert not differs(CURVE, points((1, 104.0), (4, 58.0), (16.5, 20.0)))
    assert differs(CURVE, points((1, 101.0 + 100 * CHANGED), (4, 60.0), (16, 20.0)))
    assert differs(CURVE, points((1, 100.0), (5, 60.0), (16, 20.0)))
    assert differs(CURVE, CURVE[:2])
    assert differs((), CURVE)
