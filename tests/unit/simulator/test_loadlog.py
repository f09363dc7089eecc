from __future__ import annotations

import pytest

from gateway.simulator import library
from gateway.simulator.loadlog import Speaker, load_lines, milestones
from gateway.simulator.spec import Defaults, read_spec


@pytest.mark.parametrize("name", library.names())
def test_the_lines_of_a_start_come_in_order_and_end_when_it_serves(name: str) -> None:
    preset = library.load(name)
    spec = read_spec([], Defaults(model=name, version="1", max_model_len=2048, gpus=preset.box.gpus))
    lines = load_lines(preset, spec, url="http://x", api_pid=1)
    times = [line.at_s for line in lines]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(preset.load.total_s())
    assert lines[-1].text == "INFO:     Application startup complete."
    shards = [line.text for line in lines if "checkpoint shards" in line.text]
    assert shards[-1].startswith(f"Loading safetensors checkpoint shards: 100% Completed | {preset.model.shards}/")


def test_a_rank_of_each_gpu_is_told() -> None:
    preset = library.load(library.names()[0])
    spec = read_spec(["-tp", "4"], Defaults(model="m", version="1", max_model_len=2048, gpus=8))
    lines = load_lines(preset, spec, url="http://x", api_pid=1)
    assert sum("world_size=4 rank=" in line.text for line in lines) == 4
    assert all(line.speaker is Speaker.CORE for line in lines if "world_size" in line.text)


def test_milestones_follow_one_another() -> None:
    steps = milestones(library.load(library.names()[0]))
    assert 0 < steps.core_s < steps.weights_from_s < steps.weights_to_s < steps.ready_s
