"""Any fleet, any load, any order of events: what holds of every choice, every curve and every quarantine."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.routing.backend import BackendState
from gateway.core.routing.choices import by_session, fastest, least_by_weight, power_of_two
from gateway.core.routing.curve import CurveBook, CurvePoint, predict
from gateway.core.routing.poison import MAX_QUARANTINED, MAX_SUSPECTS, PoisonBook
from gateway.core.routing.policy import PoisonPolicy
from gateway.core.routing.reading import EngineReading
from gateway.core.routing.rendezvous import LOAD_BOUND, number_of
from gateway.core.routing.snapshot import BackendView

names = st.lists(st.text("abcdefgh", min_size=1, max_size=3), min_size=1, max_size=8, unique=True)
sessions = st.integers(0, 2**64 - 1)
units = st.floats(0, 1, exclude_max=True)
weights = st.floats(0.1, 1.0)


def fleet(named: list[str]) -> list[BackendView]:
    return [BackendView(name=name, pool="p", url="http://h:1", state=BackendState.SERVING) for name in named]


def seeds(named: list[str]) -> dict[str, int]:
    return {name: number_of(name.encode()) for name in named}


def nothing(_: str) -> int:
    return 0


@given(names, st.lists(sessions, min_size=1, max_size=50), st.data())
def test_when_a_backend_leaves_only_its_own_sessions_move(
    named: list[str], asked: list[int], data: st.DataObject
) -> None:
    left = data.draw(st.sampled_from(named))
    rest = [name for name in named if name != left]
    if not rest:
        return
    for session in asked:
        before = by_session(fleet(named), nothing, session=session, seeds=seeds(named)).name
        after = by_session(fleet(rest), nothing, session=session, seeds=seeds(rest)).name
        assert before in (after, left)


@given(names, st.lists(sessions, min_size=1, max_size=200), st.data())
def test_no_backend_has_much_more_than_its_part_however_sessions_fall(
    named: list[str], asked: list[int], data: st.DataObject
) -> None:
    given_weights = {name: data.draw(weights) for name in named}
    weighed = data.draw(st.booleans())
    loads = Counter[str]()
    for total, session in enumerate(asked, start=1):
        chosen = by_session(
            fleet(named),
            loads.__getitem__,
            session=session,
            seeds=seeds(named),
            weigh=(lambda b: given_weights[b.name]) if weighed else None,
        )
        loads[chosen.name] += 1
        share = given_weights[chosen.name] / sum(given_weights.values()) if weighed else 1 / len(named)
        assert loads[chosen.name] <= math.ceil(LOAD_BOUND * total * share)


@given(names, st.data())
def test_every_way_chooses_one_that_was_offered(named: list[str], data: st.DataObject) -> None:
    loads = {name: data.draw(st.integers(0, 1000)) for name in named}
    tps = {name: data.draw(st.none() | st.floats(0.1, 1e4)) for name in named}
    own = {name: data.draw(weights) for name in named}
    weigh = data.draw(st.sampled_from([None, lambda b: own[b.name]]))
    offered = fleet(named)

    def draw() -> float:
        return data.draw(units)

    chosen = {
        "two": power_of_two(offered, loads.__getitem__, weigh=weigh, draw=draw),
        "weight": least_by_weight(offered, loads.__getitem__, weigh=weigh or (lambda _: 1.0), draw=draw),
        "rate": fastest(offered, loads.__getitem__, rate=lambda name, _: tps[name], weigh=weigh, draw=draw, turn=1),
    }
    assert all(it in offered for it in chosen.values())


@given(st.dictionaries(st.integers(0, 12), st.floats(0.5, 500), min_size=1, max_size=8), st.integers(1, 10_000))
def test_a_prediction_lies_between_its_neighbours_and_outside_of_them_falls_slowly_with_streams(
    measured: dict[int, float], streams: int
) -> None:
    curve = tuple(CurvePoint(streams=2.0**at, tps=tps) for at, tps in sorted(measured.items()))
    predicted = predict(curve, streams)
    assert predicted is not None
    if curve[0].streams <= streams <= curve[-1].streams:
        assert min(measured.values()) * (1 - 1e-9) <= predicted <= max(measured.values()) * (1 + 1e-9)
        return
    nearest = curve[0] if streams < curve[0].streams else curve[-1]
    further = nearest.streams / streams
    bounds = sorted((nearest.tps, nearest.tps * further))
    assert bounds[0] <= predicted <= bounds[1], "slower among more, and no faster than its part of all tokens allows"


counts = st.none() | st.integers(0, 5000)
readings = st.tuples(
    st.floats(0.1, 1000), st.none() | st.floats(-100, 1e6), counts, counts, st.none() | st.floats(-10, 1e5), counts
)


@given(st.lists(readings, max_size=60))
def test_whatever_is_read_a_curve_is_in_order_and_finite(
    steps: list[tuple[float, float | None, int | None, int | None, float | None, int | None]],
) -> None:
    book, now, tokens, decoded_s = CurveBook(), 0.0, 0.0, 0.0
    for span_s, gained, running, waiting, decoding_s, ours in steps:
        now += span_s
        tokens = max(0.0, tokens + (gained or 0.0))
        decoded_s = max(0.0, decoded_s + (decoding_s or 0.0))
        reading = EngineReading(
            read_at=now,
            generation_tokens=None if gained is None else tokens,
            running=running,
            waiting=waiting,
            decode_s=None if decoding_s is None else decoded_s,
        )
        book.add(reading, ours=ours)
        assert 0 <= book.strangers() <= 10_000
    curve = book.curve()
    assert all(math.isfinite(it.tps) and it.tps > 0 and it.streams >= 1 for it in curve)
    assert all(a.streams < b.streams for a, b in pairwise(curve))
    predicted = [predict(curve, streams) for streams in (1, 7, 100_000)]
    assert all(it is None or (math.isfinite(it) and it > 0) for it in predicted)


@given(
    st.lists(st.floats(0.2, 5.0), min_size=2, max_size=4),
    st.lists(st.sampled_from([1, 2, 4, 8, 16]), min_size=1, max_size=8),
)
def test_an_engine_that_becomes_another_one_is_known_again_where_it_was_measured_twice(
    factors: list[float], running: list[int]
) -> None:
    """True rates are 100 / streams^0.3 times the factor, whatever is measured in whatever order."""
    book, now, tokens, decoded_s = CurveBook(), 0.0, 0.0, 0.0

    def read(streams: int, factor: float) -> None:
        nonlocal now, tokens, decoded_s
        for span_s in (0.001, 2.0):
            now += span_s
            decoded_s += span_s * streams
            tokens += span_s * streams * factor * 100.0 / streams**0.3
            book.add(EngineReading(read_at=now, generation_tokens=tokens, running=streams, decode_s=decoded_s))

    for streams in (1, 2, 4, 8, 16):
        read(streams, 1.0)
    for factor in factors:
        for streams in running * 2:
            read(streams, factor)
        for streams in running:
            predicted = predict(book.curve(), streams)
            assert predicted is not None
            assert 0.6 < predicted / (factor * 100.0 / streams**0.3) < 1.7


backends = st.sampled_from("abc")
prints = st.sampled_from(["f", "g", "h"])
happenings = st.lists(
    st.one_of(
        st.tuples(st.just("strike"), prints, backends),
        st.tuples(st.just("completed"), prints, backends),
        st.tuples(st.sampled_from(["ill", "well", "dead", "restarted"]), prints, backends),
        st.tuples(st.just("tick"), prints, backends),
    ),
    max_size=60,
)


@given(happenings, st.lists(st.floats(0.01, 40), min_size=60, max_size=60), st.integers(1, 3))
def test_nobody_is_quarantined_with_fewer_strikes_than_deaths_or_after_a_good_end(
    events: list[tuple[str, str, str]], pauses: list[float], deaths: int
) -> None:
    book, now = PoisonBook(), 0.0
    book.configure(PoisonPolicy(deaths=deaths, quarantine_s=100))
    strikes = Counter[str]()
    for (what, fingerprint, backend), pause_s in zip(events, pauses, strict=False):
        now += pause_s
        match what:
            case "strike":
                strikes[fingerprint] += 1
                book.strike(fingerprint, backend, at=now, now=now)
            case "completed":
                strikes[fingerprint] = 0
                book.completed(fingerprint, at=now)
            case "ill":
                book.ill(backend, now=now)
            case "dead":
                book.dead(backend, at=now, now=now)
            case "restarted":
                book.restarted(backend, since=now - pause_s, now=now)
            case "well":
                book.well(backend, now=now)
            case _:
                book.tick(now=now)
        for held in book.quarantined:
            assert strikes[held.fingerprint] >= deaths == len(held.backends)
            assert held.fingerprint not in book.suspects
        assert len(book.suspects) <= MAX_SUSPECTS
        assert len(book.quarantined) <= MAX_QUARANTINED
    book.tick(now=now + 200)
    assert (book.suspects, book.quarantined) == ((), ())
