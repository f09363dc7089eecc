from __future__ import annotations

from io import StringIO

import pytest

from gateway.simulator import library
from gateway.simulator.loadlog import LoadLine, Speaker, load_lines, milestones
from gateway.simulator.printer import Printer
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
    assert [(line.speaker, line.rank) for line in lines if "world_size" in line.text] == [
        (Speaker.WORKER, rank) for rank in range(4)
    ]


def test_milestones_follow_one_another() -> None:
    steps = milestones(library.load(library.names()[0]))
    assert 0 < steps.core_s < steps.weights_from_s < steps.weights_to_s < steps.ready_s


OWN_KERNEL = (
    "Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs. To silence this "
    "warning, specify disable_custom_all_reduce=True explicitly."
)


def told(name: str, world: int, *, custom: bool = True) -> list[LoadLine]:
    preset = library.load(name)
    spec = read_spec(["-tp", str(world)], Defaults(model="m", version="1", max_model_len=2048, gpus=8))
    return load_lines(preset, spec, url="http://x", api_pid=1, custom=custom)


def test_each_worker_says_that_nccl_will_decide_where_vllm_has_no_kernel_of_its_own() -> None:
    warned = [line for line in told("kimi-k2.5-int4", 8) if line.text == OWN_KERNEL]
    assert [(line.speaker, line.rank, line.level) for line in warned] == [
        (Speaker.WORKER, rank, "WARNING") for rank in range(8)
    ]


def test_nobody_says_so_on_two_gpus_on_nvlink_or_when_it_was_switched_off() -> None:
    for lines in (
        told("kimi-k2.5-int4", 2),
        told("kimi-k2.5-int4", 8, custom=False),
        told("qwen3-8b-h200", 8),
        told("kimi-k2.5-int4", 1),
    ):
        assert not any("Custom allreduce" in line.text for line in lines)


def test_a_number_of_gpus_that_the_kernel_does_not_know_is_told_once() -> None:
    (line,) = [line for line in told("kimi-k2.5-int4", 5) if "Custom allreduce" in line.text]
    assert "due to an unsupported world size: 5. Supported world sizes: [2, 4, 6, 8, 16]. To silence" in line.text


def test_workers_tell_of_nccl_weights_and_graphs_and_the_core_of_the_cache() -> None:
    for world, expected in ((8, Speaker.WORKER), (1, Speaker.CORE)):
        lines = told("kimi-k2.5-int4", world)
        for text in ("Starting to load model", "Model loading took", "torch.compile took", "Graph capturing finished"):
            assert next(line for line in lines if line.text.startswith(text)).speaker is expected
        for text in ("GPU KV cache size", "init engine", "Initializing a V1"):
            assert next(line for line in lines if line.text.startswith(text)).speaker is Speaker.CORE


def test_a_worker_speaks_under_its_name_and_process_id() -> None:
    output = StringIO()
    line = LoadLine(0.0, Speaker.WORKER, "hello", "a.py:1", rank=1)
    Printer(output).load_line(line, core_pid=50, worker_pids=(61, 62))
    Printer(output).load_line(line, core_pid=50)
    first, second = output.getvalue().splitlines()
    assert first.startswith("(Worker_TP1 pid=62) INFO ")
    assert second.startswith("(Worker_TP1 pid=52) INFO ")
