"""What can be injected at all: what would break an engine is refused, and what is allowed never breaks one."""

from __future__ import annotations

from math import inf, isfinite, nan
from typing import Any

import msgspec
import pytest

from gateway.simulator.drift import Drift, DriftKind
from gateway.simulator.gpu import GpuHost, Work
from gateway.simulator.request import Emission
from tests.fakes.presets import NAMES, engine, forced, preset

FAULTS = {DriftKind.CRASH, DriftKind.HANG}


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "context", "magnitude": 1e308},
        {"kind": "thermal", "magnitude": 1e300},
        {"kind": "state-step", "magnitude": -5},
        {"kind": "state-step", "magnitude": nan},
        {"kind": "state-step", "magnitude": inf},
        {"kind": "slow-ramp", "magnitude": 0.1, "ramp_s": 0},
        {"kind": "slow-ramp", "magnitude": 0.1, "ramp_s": inf},
        {"kind": "thermal", "magnitude": 0.1, "gpu": -1},
        {"kind": "thermal", "magnitude": 0.1, "gpus": 1},
    ],
)
def test_what_would_break_an_engine_is_no_injection(wrong: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, Drift)


@pytest.mark.parametrize("name", NAMES)
def test_the_most_of_every_injection_leaves_an_engine_that_answers_and_can_be_read(name: str) -> None:
    for kind in set(DriftKind) - FAULTS:
        machine = engine(preset(name))
        drift = Drift(kind=kind, magnitude=10.0)
        machine.pacer.drifts.check(drift)
        machine.inject(drift, 0.0)
        machine.submit(forced(8), 0.0)
        emissions: list[Emission] = []
        for _ in range(20_000):  # strangers never rest
            due = machine.next_at()
            if due is None or any(emission.finish for emission in emissions):
                break
            assert due < 1e5, kind
            emissions += machine.step(due)
        assert any(emission.finish == "length" for emission in emissions), kind
        reading = machine.host.reading(0, Work(streams=1), drifts=machine.pacer.drifts)
        assert isfinite(reading.power_w), kind


def test_a_box_refuses_what_it_cannot_have_and_stays_as_it_is() -> None:
    box = preset().box
    host = GpuHost(box)
    before = host.record()
    for wrong in (
        lambda: host.xid(0, gpu=0, now=0.0),
        lambda: host.xid(79, gpu=box.gpus, now=0.0),
        lambda: host.wedge(0, -1),
        lambda: host.wedge(0, box.memory_bytes + 1),
        lambda: host.wedge(-1, 0),
        lambda: host.inject(Drift(kind=DriftKind.ECC, magnitude=0.1, gpu=box.gpus), 0.0),
    ):
        with pytest.raises(ValueError, match=r"GPU|Xid"):
            wrong()
    assert host.record() == before
