"""The soak's crowd keeps its books, and its verdict tells growth from noise."""

import pytest

from benchmarks.soak import Crowd
from benchmarks.soak_verdict import MIB, Sample, at_rest, growths, slope, told
from tests.benchmarks.test_harness import serving


def sample(streams: int, *, mib: float = 50.0, descriptors: int = 100, in_flight: float = 0.0) -> Sample:
    return Sample(
        at_s=streams / 1000,
        streams=streams,
        resident_bytes={"worker": int(mib * MIB)},
        descriptors={"worker": descriptors},
        threads={"worker": 3},
        in_flight=in_flight,
        connections=0.0,
    )


def test_the_slope_is_that_of_most_pairs_and_a_single_spike_does_not_decide() -> None:
    line = [(float(x), 2.0 * x + 1) for x in range(20)]
    assert slope(line) == 2.0
    assert slope([*line[:10], (10.0, 900.0), *line[11:]]) == pytest.approx(2.0, rel=0.02)
    assert slope([(1.0, 5.0)]) == 0.0


def test_what_breathes_is_steady_and_what_fills_up_in_the_first_tenth_is_no_growth() -> None:
    samples = [sample(n * 1000, mib=40.0 + min(n, 9) + n % 2, descriptors=100 + n % 3 * 10) for n in range(101)]
    assert all(growth.steady for growth in growths(samples))


def test_twenty_five_bytes_a_stream_are_found() -> None:
    samples = [sample(n * 1000, mib=50 + n * 1000 * 25 / MIB) for n in range(101)]
    memory, descriptors = growths(samples)
    assert not memory.steady
    assert memory.grown == pytest.approx(90_000 * 25 / MIB)
    assert descriptors.steady
    verdict = told([memory, descriptors], {})
    assert "GROWS" in verdict.splitlines()[1]
    assert verdict.endswith("NOT STEADY")


def test_few_samples_are_no_verdict() -> None:
    with pytest.raises(ValueError, match="too few"):
        growths([sample(n) for n in range(5)])


def test_at_rest_nothing_may_be_held_that_was_not_held_before() -> None:
    before = sample(0, descriptors=50)
    assert at_rest(before, sample(0, descriptors=54)) == []
    assert at_rest(before, sample(0, descriptors=55)) == [
        "worker holds 5 descriptors more than before the first stream"
    ]
    assert at_rest(before, sample(0, descriptors=50, in_flight=1.0)) == [
        "1 requests are in flight and no client is there"
    ]
    assert told([], {"at rest": ["x"]}).endswith("NOT STEADY")
    assert told([], {"at rest": []}).endswith("steady: nothing grows")


@pytest.mark.asyncio
async def test_every_stream_of_the_crowd_is_complete_or_was_left() -> None:
    async with serving() as (engine, port):
        crowd = Crowd(port, 400)
        await crowd.run()
    assert crowd.tally.failures == []
    assert crowd.begun == 400
    assert 0 < crowd.left < 60
    assert crowd.tally.complete_streams + crowd.left >= 400
    assert engine.counters.finished + engine.counters.aborted <= 400
