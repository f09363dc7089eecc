"""Errors of the driver by number: who dies of them, and what can still be read of the card."""

from __future__ import annotations

import pytest

from gateway.simulator.box_record import read_record, written
from gateway.simulator.gpu import GpuHost, Work
from gateway.simulator.reading_noise import Monitor, ReadingNoise
from tests.fakes.presets import engine, forced, preset, quiet

STORY = quiet(preset())


@pytest.mark.parametrize("code, dies", [(31, True), (79, True), (95, True), (63, False), (74, False), (154, False)])
def test_an_engine_dies_of_a_fatal_error_on_one_of_its_cards(code: int, dies: bool) -> None:
    machine = engine(STORY)
    machine.submit(forced(50), 0.0)
    machine.host.xid(code, gpu=3, now=1.0)
    machine.notice(0.5)
    assert machine.dead is dies
    assert (machine.next_at() is None) is dies


def test_an_error_of_a_card_that_is_not_its_own_or_of_before_does_not_kill() -> None:
    machine = engine(STORY, "-tp", "4")
    machine.host.xid(31, gpu=6, now=1.0)
    machine.notice(0.5)
    assert not machine.dead
    machine.host.restore(GpuHost(STORY.box).record())
    machine.notice(0.6)
    machine.host.xid(31, gpu=1, now=2.0)
    machine.notice(0.7)
    assert machine.dead


def test_of_a_card_that_fell_off_the_bus_nothing_can_be_read_but_who_it_is() -> None:
    machine = engine(STORY)
    machine.host.xid(79, gpu=2, now=1.0)
    machine.host.xid(31, gpu=1, now=1.0)
    drifts, monitor = machine.pacer.drifts, Monitor(seed=1)
    shown = [
        monitor.look(
            f"gpu{gpu}", machine.host.reading(gpu, Work(streams=0), drifts=drifts), noise=ReadingNoise(), now=2.0
        )
        for gpu in (1, 2)
    ]
    assert shown[0].values["power_w"] is not None
    assert shown[0].values["is_lost"] is False
    named = {name for name, value in shown[1].values.items() if value is not None}
    assert named == {"index", "name", "uuid", "is_lost"}


def test_a_card_whose_process_was_killed_in_a_hung_collective_stays_busy_for_nobody() -> None:
    machine = engine(STORY)
    host, drifts = machine.host, machine.pacer.drifts
    host.hold(71, "VLLM::Worker_TP0", bytes_each=1, gpus=(0,))
    host.latch()
    host.release(71)
    record, dropped = read_record(written(host.record()), STORY.box)
    assert record is not None
    assert dropped == []
    later = GpuHost(STORY.box)
    later.restore(record)
    reading = later.reading(0, Work(streams=0), drifts=drifts)
    assert (reading.utilisation, reading.power_w, reading.processes) == (100, 120.0, ())
    assert later.reading(1, Work(streams=0), drifts=drifts).utilisation == 0
    later.restore(GpuHost(STORY.box).record())
    assert later.reading(0, Work(streams=0), drifts=drifts).utilisation == 0
