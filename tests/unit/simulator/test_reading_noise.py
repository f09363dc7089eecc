"""Readings that are missing, old or wrong: as often as asked for, and honest about their age."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from gateway.simulator.drifting import Drifts
from gateway.simulator.gpu import GpuHost, Work
from gateway.simulator.nccl import resolve
from gateway.simulator.physics import decode_parts
from gateway.simulator.reading_noise import Monitor, ReadingNoise, Seen
from gateway.simulator.readings import GpuReading
from tests.fakes.presets import preset

GIVEN = preset()
SURE = {"index", "name", "uuid", "is_lost"}


def truth(streams: int = 1) -> GpuReading:
    parts = decode_parts(GIVEN, resolve(GIVEN.box, {}, hidden=GIVEN.model.hidden), 1)
    host = GpuHost(GIVEN.box)
    host.hold(7, "VLLM::Worker_TP0", bytes_each=10**9)
    return host.reading(0, Work(streams=streams), drifts=Drifts(parts, context_s=GIVEN.pace.context_s))


def looks(noise: ReadingNoise, *, count: int = 400, seed: int = 1) -> list[Seen]:
    monitor = Monitor(seed=seed)
    return [monitor.look("gpu0", truth(at % 3), noise=noise, now=float(at)) for at in range(count)]


def plain(streams: int) -> dict[str, Any]:
    return msgspec.structs.asdict(truth(streams))


def test_without_noise_the_truth_comes_with_its_instant() -> None:
    for at, seen in enumerate(looks(ReadingNoise(), count=5)):
        assert (seen.values, seen.late, seen.at) == (plain(at % 3), {}, float(at))


def test_readings_are_missing_late_and_wrong_as_often_as_asked_for() -> None:
    noise = ReadingNoise(missing=0.10, late=0.03, spurious=0.02)
    found = Counter[str]()
    for at, seen in enumerate(looks(noise)):
        for name, value in seen.values.items():
            if name in SURE:
                continue
            kind = "missing" if value is None else "late" if name in seen.late else "right"
            found[kind if kind != "right" or value == plain(at % 3)[name] else "wrong"] += 1
    total = found.total()
    assert found["missing"] / total == pytest.approx(0.10, abs=0.01)
    assert found["late"] / total == pytest.approx(0.03, abs=0.006)
    assert found["wrong"] / total == pytest.approx(0.02, abs=0.006)


def test_an_old_value_was_true_at_the_instant_that_it_names() -> None:
    late = 0
    for at, seen in enumerate(looks(ReadingNoise(late=0.3))):
        for name, since in seen.late.items():
            late += 1
            assert since < at
            assert seen.values[name] == plain(int(since) % 3)[name]
    assert late > 1000


def test_before_the_first_look_there_is_nothing_old_to_see() -> None:
    (seen,) = looks(ReadingNoise(late=1.0), count=1)
    assert {name for name, value in seen.values.items() if value is not None} == SURE
    assert seen.late == {}


def test_a_wrong_value_has_the_type_of_a_right_one_and_differs() -> None:
    for at, seen in enumerate(looks(ReadingNoise(spurious=1.0), count=50)):
        for name, value in plain(at % 3).items():
            if name in SURE:
                continue
            assert seen.values[name] != value, name
            assert type(seen.values[name]) is type(value), name


def test_the_same_seed_spoils_the_same_readings() -> None:
    noise = ReadingNoise(missing=0.1, late=0.1, spurious=0.1)
    assert looks(noise) == looks(noise)
    assert looks(noise) != looks(noise, seed=2)


def test_what_is_shown_says_when_and_how_old() -> None:
    shown = looks(ReadingNoise(late=0.5), count=3)[2].shown()
    assert shown["at"] == 2.0
    assert set(shown["late"].values()) <= {0.0, 1.0}
    assert shown["index"] == 0


@pytest.mark.parametrize("chances", [{"missing": -0.1}, {"missing": 0.6, "late": 0.5}])
def test_chances_that_cannot_be_are_refused(chances: dict[str, float]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(chances, ReadingNoise)
