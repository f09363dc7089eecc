"""One start as values: when a warm engine began to serve."""

from pathlib import Path
from random import Random

from gateway.simulator.launch import Launch
from gateway.simulator.noise import PaceNoise
from tests.fakes.presets import preset


def cold_at_first_request(launch: Launch) -> float:
    noise = PaceNoise(launch.preset.noise, Random(1), launch.served_since)
    return noise.cold(0.0)


def test_an_engine_is_slow_after_its_start_unless_it_starts_warm() -> None:
    given = preset("kimi-k2.5-int4")
    assert cold_at_first_request(Launch(given, Path("card"))) == given.noise.cold_factor
    assert cold_at_first_request(Launch(given, Path("card"), warm=True)) < 1.0001
