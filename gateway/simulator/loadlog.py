"""What a starting server prints, in vLLM's wording, and when: one list of lines from a preset's phases.

Pure: instants are seconds since the start, uncompressed.  The order and the silent stretches are those recorded on an
H200; a progress bar's updates begin with a carriage return and no prefix, as they do there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from gateway.simulator.presets import Link, Preset
from gateway.simulator.spec import ServerSpec

_GIB: Final = 1 << 30
_BAR_CELLS: Final = 10
_PIECEWISE: Final = 51  # recorded: shapes of graphs at 256 streams
_FULL: Final = 35
# Updates of one bar that are printed, at most: a real bar prints more of them.
_BAR_UPDATES: Final = 16
_OWN_WORLDS: Final = (2, 4, 6, 8, 16)  # sizes that vLLM's own all-reduce supports, of version 0.32
_ROUTES: Final = (
    ("/load", "GET"), ("/version", "GET"), ("/health", "GET"), ("/metrics", "GET"), ("/tokenize", "POST"),
    ("/v1/models", "GET"), ("/ping", "GET"), ("/ping", "POST"), ("/v1/chat/completions", "POST"),
    ("/v1/completions", "POST"),
)  # fmt: skip


class Speaker(StrEnum):
    """Which process prints a line."""

    API = "APIServer"
    CORE = "EngineCore"
    WORKER = "Worker"  # one a GPU where there are several, by rank
    NONE = ""  # a line without a prefix


@dataclass(frozen=True, slots=True)
class LoadLine:
    """One line; ``source`` is empty where there is neither level nor place, ``is_bar`` for a bar's update.

    ``rank`` is that of the Worker that speaks.
    """

    at_s: float
    speaker: Speaker
    text: str
    source: str = ""
    level: str = "INFO"
    is_bar: bool = False
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Milestones:
    """Instants that the process acts on: EngineCore exists, weights begin and end, requests are served."""

    core_s: float
    weights_from_s: float
    weights_to_s: float
    ready_s: float


def milestones(preset: Preset) -> Milestones:
    """Return the instants of a start."""
    load = preset.load
    core_s = load.boot_s + load.inspect_s
    weights_s = core_s + load.workers_s + load.nccl_s
    return Milestones(core_s, weights_s, weights_s + load.weights_s, load.total_s())


def load_lines(preset: Preset, spec: ServerSpec, *, url: str, api_pid: int, custom: bool = True) -> list[LoadLine]:
    """Return every line of a start, in order; ``custom`` False: vLLM's own all-reduce was switched off by argument."""
    lines = [
        *_opening(preset, spec, custom=custom),
        *_weights(preset, spec),
        *_compiling(preset),
        *_serving(preset, url, api_pid),
    ]
    if spec.tensor_parallel > 1:
        return lines
    # One GPU has no Worker: EngineCore does its work, and says so itself.
    return [replace(line, speaker=Speaker.CORE) if line.speaker is Speaker.WORKER else line for line in lines]


def _opening(preset: Preset, spec: ServerSpec, *, custom: bool) -> Iterator[LoadLine]:
    load = preset.load
    at_s = load.boot_s
    for text in ("", f"  simulated vLLM   version {spec.version}", f"                   model   {spec.root}", ""):
        yield LoadLine(at_s, Speaker.API, text, "api_utils.py:347")
    told = f"non-default args: {spec.given}"
    yield LoadLine(at_s, Speaker.API, told, "api_utils.py:286")
    at_s += load.inspect_s
    yield LoadLine(at_s, Speaker.API, "Resolved architecture: SimulatedForCausalLM", "model.py:733")
    yield LoadLine(at_s, Speaker.API, f"Using max model len {spec.max_model_len}", "model.py:2152")
    batched = f"Chunked prefill is enabled with max_num_batched_tokens={preset.serve.batched_tokens}."
    yield LoadLine(at_s, Speaker.API, batched, "scheduler.py:252")
    yield LoadLine(at_s, Speaker.API, "Asynchronous scheduling is enabled.", "vllm.py:1109")
    at_s += load.workers_s
    begun = f"Initializing a V1 LLM engine (v{spec.version}) with config: model='{spec.root}', simulated=True"
    yield LoadLine(at_s, Speaker.CORE, begun, "core.py:133")
    yield from _joining(preset, spec.tensor_parallel, at_s=at_s, custom=custom)


def _joining(preset: Preset, world: int, *, at_s: float, custom: bool) -> Iterator[LoadLine]:
    """The Workers find one another; what vLLM says once, the first of them says."""
    joined_s = at_s + preset.load.nccl_s
    for rank in range(world):
        text = (
            f"world_size={world} rank={rank} local_rank={rank} distributed_init_method=tcp://127.0.0.1:0 backend=nccl"
        )
        yield LoadLine(at_s, Speaker.WORKER, text, "parallel_state.py:1906", rank=rank)
    if world > 1:
        text = f"vLLM is using nccl=={preset.box.nccl_version}"
        # Before it joins: where it hangs this is the last line.
        yield LoadLine(at_s, Speaker.WORKER, text, "pynccl.py:148")
    if world not in _OWN_WORLDS and world > 1 and custom:
        text = f"due to an unsupported world size: {world}. Supported world sizes: {list(_OWN_WORLDS)}."
        yield _no_own_kernel(joined_s, text, "custom_all_reduce.py:215")
    elif world > 2 and preset.box.link is not Link.NVL and custom:
        text = "because it's not supported on more than two PCIe-only GPUs."
        for rank in range(world):
            yield replace(_no_own_kernel(joined_s, text, "custom_all_reduce.py:271"), rank=rank)
    text = f"rank 0 in world size {world} is assigned as DP rank 0, PP rank 0, PCP rank 0, TP rank 0"
    yield LoadLine(joined_s, Speaker.WORKER, text, "parallel_state.py:2350")


def _no_own_kernel(at_s: float, why: str, source: str) -> LoadLine:
    text = f"Custom allreduce is disabled {why} To silence this warning, specify disable_custom_all_reduce=True explicitly."
    return LoadLine(at_s, Speaker.WORKER, text, source, level="WARNING")


def _weights(preset: Preset, spec: ServerSpec) -> Iterator[LoadLine]:
    steps = milestones(preset)
    from_s, took_s = steps.weights_from_s, preset.load.weights_s
    yield LoadLine(from_s, Speaker.WORKER, f"Starting to load model {spec.root}...", "gpu_model_runner.py:5250")
    yield from _bar("Loading safetensors checkpoint shards: {percent:3d}% Completed | {done}/{of} [{clock}]",
                    preset.model.shards, from_s=from_s, took_s=took_s)  # fmt: skip
    to_s = steps.weights_to_s
    yield LoadLine(to_s, Speaker.WORKER, f"Loading weights took {took_s:.2f} seconds", "default_loader.py:501")
    gib = (preset.model.dense_bytes + preset.model.expert_bytes) / max(1, preset.box.gpus) / _GIB
    text = f"Model loading took {gib:.2f} GiB memory and {took_s:.6f} seconds"
    yield LoadLine(to_s, Speaker.WORKER, text, "gpu_model_runner.py:5347")


def _compiling(preset: Preset) -> Iterator[LoadLine]:
    load = preset.load
    at_s = milestones(preset).weights_to_s
    dynamo_s = load.compile_s / 4
    text = f"Dynamo bytecode transform time: {dynamo_s:.2f} s"
    yield LoadLine(at_s + dynamo_s, Speaker.WORKER, text, "backends.py:1155")
    at_s += load.compile_s
    yield LoadLine(at_s, Speaker.WORKER, f"torch.compile took {load.compile_s:.2f} s in total", "monitor.py:53")
    at_s += load.memory_s
    tokens, longest = preset.serve.kv_cache_tokens, preset.model.max_model_len
    yield LoadLine(at_s, Speaker.CORE, f"GPU KV cache size: {tokens:,} tokens", "kv_cache_utils.py:2177")
    text = f"Maximum concurrency for {longest:,} tokens per request: {tokens / longest:.2f}x"
    yield LoadLine(at_s, Speaker.CORE, text, "kv_cache_utils.py:2178")
    half_s = load.graphs_s / 2
    for kind, of, begun_s in (
        ("mixed prefill-decode, PIECEWISE", _PIECEWISE, at_s),
        ("decode, FULL", _FULL, at_s + half_s),
    ):
        shape = f"Capturing CUDA graphs ({kind}): {{percent:3d}}%|{{cells}}| {{done}}/{{of}} [{{clock}}]"
        yield from _bar(shape, of, from_s=begun_s, took_s=half_s)
    at_s += load.graphs_s
    text = f"Graph capturing finished in {load.graphs_s:.0f} secs, took 2.31 GiB"
    yield LoadLine(at_s, Speaker.WORKER, text, "gpu_model_runner.py:6844")
    at_s += load.warm_s
    text = "Kernel JIT monitor activated; monitored JIT compilations during inference will use mode=warn."
    yield LoadLine(at_s, Speaker.WORKER, text, "jit_monitor.py:79")
    engine_s = load.compile_s + load.memory_s + load.graphs_s + load.warm_s
    text = (
        f"init engine (profile, create kv cache, warmup model) took {engine_s:.2f} s "
        f"(compilation: {load.compile_s:.2f} s)"
    )
    yield LoadLine(at_s, Speaker.CORE, text, "core.py:402")


def _serving(preset: Preset, url: str, api_pid: int) -> Iterator[LoadLine]:
    at_s = preset.load.total_s()
    yield LoadLine(at_s, Speaker.API, "Supported tasks: ['generate']", "entry.py:136")
    yield LoadLine(at_s, Speaker.API, f"Starting vLLM server on {url}", "entry.py:140")
    yield LoadLine(at_s, Speaker.API, "Available routes are:", "launcher.py:186")
    for path, method in _ROUTES:
        yield LoadLine(at_s, Speaker.API, f"Route: {path}, Methods: {method}", "launcher.py:195")
    for text in (
        f"Started server process [{api_pid}]",
        "Waiting for application startup.",
        "Application startup complete.",
    ):
        yield LoadLine(at_s, Speaker.NONE, f"INFO:     {text}")


def _bar(shape: str, of: int, *, from_s: float, took_s: float) -> Iterator[LoadLine]:
    """A progress bar's updates, the first at 0 %, the last at 100 %."""
    shown = sorted({round(of * update / _BAR_UPDATES) for update in range(_BAR_UPDATES + 1)})
    for done in shown:
        share = done / of
        spent_s = took_s * share
        clock = f"{int(spent_s) // 60:02d}:{int(spent_s) % 60:02d}<{int(took_s - spent_s) // 60:02d}:{int(took_s - spent_s) % 60:02d}"
        full = int(_BAR_CELLS * share)
        text = shape.format(
            percent=int(100 * share), cells="█" * full + " " * (_BAR_CELLS - full), done=done, of=of, clock=clock
        )
        yield LoadLine(from_s + spent_s, Speaker.NONE, text, is_bar=True)
