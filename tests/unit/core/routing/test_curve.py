"""How fast a stream is among so many: learnt from counters, predicted."""

from __future__ import annotations

import pytest

from gateway.core.routing.curve import FRESH_S, CurveBook, CurvePoint, differs, predict
from gateway.core.routing.reading import EngineReading


def points(*pairs: tuple[float, float]) -> tuple[CurvePoint, ...]:
    return tuple(CurvePoint(streams=streams, tps=tps) for streams, tps in pairs)


CURVE = points((1, 100.0), (4, 60.0), (16, 20.0))


@pytest.mark.parametrize(
    "streams, tps",
    [(1, 100.0), (2, 80.0), (4, 60.0), (8, 40.0), (16, 20.0), (32, 10.0), (160, 2.0)],
)
def test_between_points_it_is_interpolated_in_the_logarithm_and_beyond_the_aggregate_stays(
    streams: int, tps: float
) -> None:
    assert predict(CURVE, streams) == pytest.approx(tps)


def test_below_the_first_point_the_rate_is_that_of_the_first() -> None:
    assert predict(points((8, 40.0)), 1) == 40.0


def test_nothing_measured_is_nothing_predicted() -> None:
    assert predict((), 1) is None


def learn(*readings: tuple[float, float, float | None], book: CurveBook | None = None) -> CurveBook:
    """A book that has read (at, tokens so far, running)."""
    book = book or CurveBook()
    for at, tokens, running in readings:
        book.add(EngineReading(read_at=at, generation_tokens=tokens, running=running))
    return book


def test_a_reading_counts_where_as_many_ran_before_as_after() -> None:
    book = learn((0, 0, 4), (2, 480, 4), (4, 800, 5), (6, 900, None), (8, 1800, 4))
    assert book.curve(now=8) == points((4, 60.0))


@pytest.mark.parametrize("tokens", [0, 31, -5])
def test_too_few_tokens_say_nothing(tokens: float) -> None:
    assert learn((0, 100, 4), (2, 100 + tokens, 4)).curve(now=2) == ()


def test_nobody_running_says_nothing() -> None:
    assert learn((0, 0, 0), (2, 480, 0)).curve(now=2) == ()


def test_powers_of_two_share_a_bucket_whose_place_is_the_mean_of_what_was_seen() -> None:
    book = learn((0, 0, 4), (2, 480, 4))
    learn((4, 1000, 7), (6, 1560, 7), book=book)
    (point,) = book.curve(now=6)
    assert point.tps == pytest.approx((60 + 40) / 2)
    assert point.streams == pytest.approx((4 * 7) ** 0.5)


def test_an_average_moves_to_what_is_measured_now_and_single_readings_move_it_little() -> None:
    book = CurveBook()
    tokens = 0.0
    for at in range(40):
        tokens += 200.0 if at < 20 else 100.0
        learn((2.0 * at, tokens, 1), book=book)
        if at == 20:
            assert book.curve(now=2.0 * at)[0].tps == pytest.approx(90.0)
    assert book.curve(now=80)[0].tps == pytest.approx(50.0, rel=0.02)


def test_what_was_not_measured_for_long_is_forgotten_and_all_of_it_with_the_process() -> None:
    book = learn((0, 0, 1), (2, 200, 1))
    assert book.curve(now=2 + FRESH_S) == points((1, 100.0))
    assert book.curve(now=3 + FRESH_S) == ()
    book = learn((0, 0, 1), (2, 200, 1))
    book.forget()
    assert learn((4, 400, 1), book=book).curve(now=4) == ()


def test_a_curve_is_worth_telling_when_it_moved_by_more_than_a_few_percent() -> None:
    assert not differs(CURVE, CURVE)
    assert not differs(CURVE, points((1, 104.0), (4, 58.0), (16.5, 20.0)))
    assert differs(CURVE, points((1, 106.0), (4, 60.0), (16, 20.0)))
    assert differs(CURVE, points((1, 100.0), (5, 60.0), (16, 20.0)))
    assert differs(CURVE, CURVE[:2])
    assert differs((), CURVE)
