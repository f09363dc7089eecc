"""The box on disk: what one engine changes another one finds, and a file that cannot be read is nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.simulator import core_process
from gateway.simulator.card import Card, holders
from gateway.simulator.drift import Drift, DriftKind
from gateway.simulator.gpu import BoxRecord
from gateway.simulator.reading_noise import ReadingNoise
from tests.fakes.presets import preset

BOX = preset().box
HEAT = Drift(kind=DriftKind.THERMAL, magnitude=0.1, gpu=3)


def test_what_one_changes_the_other_finds_once(tmp_path: Path) -> None:
    one, other = Card(tmp_path / "card", BOX), Card(tmp_path / "card", BOX)
    assert not other.refresh()
    one.change(lambda host: host.inject(HEAT, 5.0))
    one.change(lambda host: host.wedge(2, 1000))
    one.change(lambda host: setattr(host, "noise", ReadingNoise(missing=0.1)))
    assert other.refresh()
    assert not other.refresh()
    assert not one.refresh()
    assert other.host().record() == one.host().record()
    assert [told.drift for told in other.host().injections.in_force()] == [HEAT]


def test_changes_of_two_do_not_undo_each_other(tmp_path: Path) -> None:
    one, other = Card(tmp_path, BOX), Card(tmp_path, BOX)
    one.change(lambda host: host.inject(HEAT, 5.0))
    other.change(lambda host: host.xid(79, gpu=1, now=6.0))
    one.refresh()
    assert [event.code for event in one.host().xids] == [79]
    assert one.host().injections.has(DriftKind.THERMAL)
    one.change(lambda host: host.restore(BoxRecord()))
    other.refresh()
    assert other.host().record() == BoxRecord()


def test_a_file_that_cannot_be_read_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "box.json").write_text("{", encoding="utf-8")
    card = Card(tmp_path, BOX)
    assert not card.refresh()
    card.change(lambda host: host.inject(HEAT, 5.0))
    assert Card(tmp_path, BOX).host().injections.has(DriftKind.THERMAL)


def test_an_injection_that_is_seen_again_is_no_change(tmp_path: Path) -> None:
    card = Card(tmp_path, BOX)
    card.change(lambda host: host.inject(HEAT, 5.0))
    version = card.host().injections.version
    card.host().restore(card.host().record())
    assert card.host().injections.version == version


@pytest.fixture
def held(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds two GPUs through two workers."""
    script = core_process.__file__
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", script, str(tmp_path), "2", "1000"], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    yield process
    process.send_signal(signal.SIGUSR1)
    process.wait(10)
    process.stdout.close()


def test_living_processes_hold_what_their_files_say(tmp_path: Path, held: subprocess.Popen[bytes]) -> None:
    (tmp_path / "1").write_text("{}", encoding="utf-8")  # no engine has that number
    told = sorted(holders(tmp_path), key=lambda holder: holder.gpus)
    assert [(one.gpus, one.name, one.bytes_each) for one in told] == [
        ((0,), "VLLM::Worker_TP0", 1000),
        ((1,), "VLLM::Worker_TP1", 1000),
    ]
    assert held.pid not in {one.pid for one in told}
    host = Card(tmp_path, BOX).host()
    assert host.free_bytes(2) - host.free_bytes(0) == 1000
    held.send_signal(signal.SIGUSR1)
    held.wait(10)
    assert holders(tmp_path) == []


def test_what_a_record_has_that_cannot_be_is_dropped_with_a_line_each_and_the_rest_stays(tmp_path: Path) -> None:
    record = {
        "in_force": [
            {"drift": {"kind": "thermal", "magnitude": 1e300}, "since": 1.0},
            {"drift": {"kind": "crash", "magnitude": 1}, "since": 1.0},
            {"drift": {"kind": "thermal", "magnitude": 0.1, "gpu": 99}, "since": 1.0},
            {"drift": {"kind": "steal", "magnitude": 0.1}, "since": 1.0},
            7,
        ],
        "wedged": {"0": -5, "1": 1000, "x": 1},
        "xids": [{"at": 1.0, "gpu": 0, "code": 0}, {"at": 1.0, "gpu": 0, "code": 79}],
        "noise": {"late": 7},
    }
    (tmp_path / "box.json").write_text(json.dumps(record), encoding="utf-8")
    lines: list[str] = []
    host = Card(tmp_path, BOX, say=lines.append).host()
    assert [one.drift.kind for one in host.injections.in_force()] == [DriftKind.STEAL]
    assert [event.code for event in host.xids] == [79]
    assert host.record().wedged == {1: 1000}
    assert host.record().noise == ReadingNoise()
    assert len(lines) == 8
    for broken in ("[]", '{"in_force": 5}', "null"):
        (tmp_path / "box.json").write_text(broken, encoding="utf-8")
        assert Card(tmp_path, BOX).host().record() == BoxRecord()
