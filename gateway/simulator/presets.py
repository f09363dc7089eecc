"""A simulated deployment as data: the model's shape, the box, its pace, its noise, how it loads, what was published.

Pure: the files beside it (``presets/*.yaml``) are read by the shell, which hands the parsed tree to ``preset_from``.
Every parameter has its source, or the word "assumed", under the same name in ``sources``.  Must not compute.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from gateway.simulator.noise import NoiseSpec


class Link(StrEnum):
    """What lies between two GPUs of the box, nearest first, in NCCL's words."""

    NVL = "NVL"
    PIX = "PIX"
    PXB = "PXB"
    PHB = "PHB"
    SYS = "SYS"


class Graph(StrEnum):
    """What NCCL's search for rings makes of the box; ``broken`` is the collapse seen on dual-socket Turin."""

    HEALTHY = "healthy"
    BROKEN = "broken"


class ModelShape(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sizes that decide a step: ``dense_bytes`` are read for every token, of the experts those that are routed to.

    ``hidden`` is the width of what an all-reduce carries, in 2-byte numbers.  ``experts`` 0 means a dense model.
    """

    name: str
    layers: int
    hidden: int
    dense_bytes: float
    expert_bytes: float = 0.0
    experts: int = 0
    experts_per_token: int = 0
    allreduces_per_layer: int = 2
    max_model_len: int = 131_072
    shards: int = 64


class Box(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The host and its GPUs.  ``bandwidth_share`` is what a kernel gets of the card's ``bandwidth_bytes_per_s``.

    ``channels`` x ``channel_gbps`` is what NCCL finds for a ring when its search works; ``shm_hop_s`` is what a hop
    through host memory costs more than one from card to card, ``shm_bandwidth_share`` what it leaves of the bandwidth.
    ``latency_real`` and ``bandwidth_real`` are what the box makes of NCCL's belief, by protocol (LL, LL128, Simple):
    times so much.  ``p2p_crowding``: a byte from card to card takes so much longer at 100 streams, in proportion at
    fewer.  ``broken_simple``: (bytes, seconds) of Simple while the graph is broken, as measured alone, rising;
    ``broken_step_s`` is what the same takes longer in a decode step.
    ``p2p_hangs``: the box grants peer access that does not work; ``p2p_corrupts``: that works and gives wrong sums to
    vLLM's own kernel; ``ll128_corrupts``: LL128 does, where NCCL is made to use it.  ``sm`` is the compute capability,
    times ten.  ``pcie_gen_idle`` is what a card without work reads.
    """

    gpu: str
    gpus: int
    sm: int
    memory_bytes: int
    bandwidth_bytes_per_s: float
    bandwidth_share: float
    sm_clock_mhz: int
    memory_clock_mhz: int
    power_limit_w: int
    idle_w: int
    busy_w: int
    link: Link
    pcie_gen: int = 5
    pcie_gen_idle: int = 1
    pcie_width: int = 16
    graph: Graph = Graph.HEALTHY
    channels: int = 4
    channel_gbps: float = 24.0
    shm_hop_s: float = 0.0
    shm_bandwidth_share: float = 1.0
    latency_real: tuple[float, float, float] = (1.0, 1.0, 1.0)
    bandwidth_real: tuple[float, float, float] = (1.0, 1.0, 1.0)
    p2p_crowding: float = 0.0
    broken_simple: tuple[tuple[float, float], ...] = ()
    broken_step_s: float = 0.0
    p2p_hangs: bool = False
    p2p_corrupts: bool = False
    ll128_corrupts: bool = False
    nccl_version: str = "2.30.7"
    vllm_version: str = "0.32.0"
    driver_version: str = "580.159.04"


class PaceSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a step costs beyond weights and all-reduces, in seconds.

    ``overhead_s`` a step, ``sequence_s`` a running sequence, ``context_s`` a token of context, ``prefill_s`` a token
    of prompt (computing only), ``prefill_context_s`` such a token for each token before it, ``prefill_fixed_s`` a
    prompt (scheduling, sockets), ``tokenize_s`` a token of prompt before the engine has it, whether it is cached or
    not.  ``frontend_chunks_per_s`` is what the API process can send.  ``logprobs_compile_s``: what the first request
    with logprobs makes all wait.  ``draft_tokens`` 0 means no speculation; each is accepted with ``acceptance``, if
    those before it were.
    """

    overhead_s: float
    sequence_s: float
    context_s: float
    prefill_s: float
    prefill_fixed_s: float
    prefill_context_s: float = 0.0
    tokenize_s: float = 0.0
    logprobs_compile_s: float = 0.0
    frontend_chunks_per_s: float = 10_000.0
    draft_tokens: int = 0
    acceptance: float = 0.0


class ServeSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of the server, unless its arguments say otherwise; ``max_queued`` None means that all may wait.

    ``kv_cache_tokens`` are those that the cache of keys and values holds, in blocks of 16; ``prefix_caching``: blocks
    that nobody uses keep what is in them until they are needed.
    """

    max_seqs: int
    kv_cache_tokens: int
    prefix_caching: bool = True
    batched_tokens: int = 8192
    max_queued: int | None = None
    stream_interval: int = 1
    reasoning_share: float = 0.5


class LoadSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds of each part of a start, in order."""

    boot_s: float
    inspect_s: float
    workers_s: float
    nccl_s: float
    weights_s: float
    compile_s: float
    memory_s: float
    graphs_s: float
    warm_s: float
    serve_s: float

    def total_s(self) -> float:
        """From exec to the first answer."""
        return float(sum(getattr(self, name) for name in self.__struct_fields__))


class Published(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Figures that the preset must give, decode tokens a second; None where nobody published one.

    ``single_tps`` of an answer of ``single_tokens``, ``lone_tps`` of a load test at concurrency 1, ``high_tps`` of
    ``high_streams`` at once, all together.  ``load_s``: seconds from exec to the first answer.  ``single_within``: by
    this part a single stream may miss; more than the usual 2 % where "about" so much was published.
    """

    single_tps: float | None = None
    lone_tps: float | None = None
    single_within: float = 0.02
    single_tokens: int = 512
    high_tps: float | None = None
    high_streams: int = 256
    load_s: float | None = None


class Preset(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One deployment to simulate.  ``sources`` has one entry a parameter, by dotted name."""

    name: str
    title: str
    model: ModelShape
    box: Box
    pace: PaceSpec
    noise: NoiseSpec
    serve: ServeSpec
    load: LoadSpec
    published: Published
    sources: dict[str, str]


def preset_from(tree: dict[str, Any]) -> Preset:
    """The preset that a parsed file describes; msgspec.ValidationError names what is wrong and where."""
    return msgspec.convert(tree, Preset)


def parameters(tree: dict[str, Any]) -> Iterator[str]:
    """The dotted names of all parameters that a parsed file sets: those that need a source."""
    for section in ("model", "box", "pace", "noise", "serve", "load", "published"):
        for name in tree[section]:
            yield f"{section}.{name}"
