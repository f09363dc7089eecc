"""Presets by name and by file, and changes to their noise."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gateway.simulator import library
from gateway.simulator.library import BadPreset
from gateway.simulator.noise import StartMode
from gateway.simulator.presets import Preset
from tests.fakes.presets import tree


def test_a_preset_may_be_in_a_file(tmp_path: Path) -> None:
    given = tree("qwen3-8b-h200")
    given["name"] = "mine"
    given["noise"]["modes"] = [{"share": 0.5, "factor": 1.0}, {"share": 0.5, "factor": 1.27}]
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(given), encoding="utf-8")
    assert library.load(str(path)).name == "mine"
    assert len(library.load(str(path)).noise.modes) == 2


@pytest.mark.parametrize("text", ["just words", "name: x", "a: [", "\x00"])
def test_a_file_that_is_no_preset_is_refused_with_its_name(text: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadPreset, match=r"mine\.yaml"):
        library.load(str(path))


def test_a_file_or_name_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadPreset, match=r"none\.yaml"):
        library.load(str(tmp_path / "none.yaml"))
    with pytest.raises(KeyError):
        library.load("none")


def given() -> Preset:
    return library.load("qwen3-8b-h200")


def test_noise_can_be_changed_and_the_sources_say_so() -> None:
    changed = library.with_noise(
        given(), ["state_chance=0.3", "modes=[{share: 0.5, factor: 1}, {share: 0.5, factor: 1.27}]"]
    )
    assert changed.noise.state_chance == 0.3
    assert changed.noise.modes == (StartMode(share=0.5, factor=1.0), StartMode(share=0.5, factor=1.27))
    assert changed.noise.step_cv == given().noise.step_cv
    assert changed.sources["noise.modes"].startswith("assumed")
    assert library.with_noise(given(), []) == given()


@pytest.mark.parametrize(
    "change", ["state_chance", "nonsense=1", "state_chance=often", "modes=[", "modes=[{share: 1}]"]
)
def test_a_change_that_noise_does_not_know_is_refused(change: str) -> None:
    with pytest.raises(BadPreset):
        library.with_noise(given(), [change])
