"""What an all-reduce costs on a simulated box, and what NCCL believes that it costs.

Pure.  Two tables: NCCL's own model (latency + bytes / bandwidth, the smallest wins) decides algorithm and protocol; the
box decides the time.  They differ where the graph search is broken: NCCL then believes in 0.1 GB/s and takes Simple
at sizes where LL is four times faster.  Constants are those of NCCL's tuning for PCIe: base latencies 6.6/14.0/8.4 us
(ring), 6.8/14.0/8.4 (tree), a hop 1.0/2.5/5.7 us, 2(n-1) hops; they give 22, 50 and 89 us for 14 KB on 8 GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from gateway.simulator.nccl_env import LEVELS, PROTOCOLS, NcclSettings, c_integer, read_environment, version_of
from gateway.simulator.presets import Box, Graph, Link
from gateway.simulator.wires import along, crowded

BASE_US = {"Ring": (6.6, 14.0, 8.4), "Tree": (6.8, 14.0, 8.4)}
HOP_US = {Link.NVL: (0.6, 1.9, 3.4)}  # assumed: shorter than on PCIe, as in NCCL's tuning
PCIE_HOP_US = (1.0, 2.5, 5.7)
SHARE = (0.5, 0.92, 1.0)  # of the ring's bandwidth that a protocol can use: published that LL has half; LL128 assumed
TREE_SHARE = 0.85  # assumed: published only that a chain has less bandwidth than the ring
BROKEN_GBPS, BROKEN_CHANNELS = 0.1, 2  # published: what a dual-socket Turin host prints
_DEFAULT_LEVEL_SINCE = (2, 23)  # published: PXB since then
_CUSTOM_BYTES = 8 * 1024 * 1024  # vLLM's source: smaller ones only
_CUSTOM_S = 5e-6  # assumed; one-shot kernels were measured at 4 to 7 us
_IPC_BYTES = 56 * 1024  # published: the kernel up to 56 KB, NCCL above
_IPC_S, _IPC_GBPS = 11e-6, 20.0  # calibrated: chosen so that a token takes 9 to 14 % less, as published
_NET_HOP_S, _NET_SHARE = 15e-6, 0.05  # assumed: sockets instead of shared memory
_IPC_SINCE = (0, 31)  # assumed: which release has it first was not published
_IPC_UNTUNED = ((6144, 4),)  # (hidden size, GPUs) for which the kernel has no table
_SPREAD_GAIN = 1.2  # assumed: what more channels than rings give at megabytes
_BUFFER_BYTES = 4 * 1024 * 1024  # NCCL's default of NCCL_BUFFSIZE


class Backend(StrEnum):
    """Who does the all-reduce of a decode step."""

    NONE = "none"  # one GPU
    CUSTOM = "custom"  # vLLM's own kernel: NVLink, or exactly two GPUs with peer access
    PCIE_IPC = "pcie_ipc"
    NCCL = "nccl"


class Transport(StrEnum):
    """How NCCL moves bytes from GPU to GPU."""

    P2P = "P2P"
    SHM = "SHM"
    NET = "NET"


class Outcome(StrEnum):
    """How the initialisation ends."""

    READY = "ready"
    FAILS = "fails"
    HANGS = "hangs"


class AllReduce(Struct, frozen=True, kw_only=True):
    """The all-reduce of one start of an engine; nothing of it changes before the next start.

    ``gbps`` is what the box carries, ``believed_gbps`` what NCCL takes it for (bus bandwidth, all channels together).
    """

    box: Box
    settings: NcclSettings
    backend: Backend
    transport: Transport
    graph: Graph
    channels: int
    gbps: float
    believed_gbps: float
    outcome: Outcome
    reason: str

    def believed_s(self, algorithm: str, protocol: str, payload_bytes: float) -> float:
        """NCCL's own estimate, from the table that it prints."""
        latency_us, gbps = self.table(algorithm, protocol)
        return latency_us * 1e-6 + payload_bytes / (gbps * 1e9)

    def table(self, algorithm: str, protocol: str) -> tuple[float, float]:
        """(latency in us, algorithm bandwidth in GB/s) as NCCL believes them; bandwidth 0 means not available."""
        at = PROTOCOLS.index(protocol)
        if (algorithm, protocol) not in self.allowed():
            return self._latency_us(algorithm, at), 0.0
        return self._latency_us(algorithm, at), self._algorithm_gbps(algorithm, at, self.believed_gbps)

    def allowed(self) -> tuple[tuple[str, str], ...]:
        """The pairs that the settings and the eligibility check leave for an all-reduce."""
        tree, ring = self.settings.algorithms["AllReduce"][:2]
        flags = self.settings.protocols["AllReduce"]
        recheck = version_of(self.box.nccl_version) >= (2, 31)
        on_nvlink = self.box.link is Link.NVL
        protocols = [
            word
            for word, flag in zip(PROTOCOLS, flags, strict=True)
            if (flag and word != "LL128") or (word == "LL128" and flag and (on_nvlink or (flag == 1 and not recheck)))
        ]
        algorithms = [name for name, flag in (("Ring", ring), ("Tree", tree)) if flag]
        return tuple((algorithm, protocol) for algorithm in algorithms for protocol in protocols)

    def choice(self, payload_bytes: float) -> tuple[str, str]:
        """(algorithm, protocol) that NCCL takes at this size."""
        return min(self.allowed(), key=lambda pair: self.believed_s(pair[0], pair[1], payload_bytes))

    def seconds(self, payload_bytes: float, *, streams: int = 1) -> float:
        """The time that one all-reduce of this size really takes, while so many streams decode."""
        if self.backend is Backend.NONE:
            return 0.0
        if self.backend is Backend.CUSTOM and payload_bytes < _CUSTOM_BYTES:
            return _CUSTOM_S + payload_bytes / (self.gbps * 1e9)
        if self.backend is Backend.PCIE_IPC and payload_bytes <= _IPC_BYTES:
            return _IPC_S + payload_bytes / (_IPC_GBPS * 1e9)
        return self.nccl_s(payload_bytes, streams=streams)

    def nccl_s(self, payload_bytes: float, *, streams: int = 1) -> float:
        """The time through NCCL, whoever does the small ones: what a micro-benchmark of NCCL would find."""
        algorithm, protocol = self.choice(payload_bytes)
        at, box = PROTOCOLS.index(protocol), self.box
        if self._is_broken(protocol):
            return along(box.broken_simple, payload_bytes, widened=max(1.0, self.channels / BROKEN_CHANNELS))
        gbps = self._algorithm_gbps(algorithm, at, self.gbps) * box.bandwidth_real[at]
        latency_s = self._latency_us(algorithm, at) * 1e-6 * box.latency_real[at] + self._hops() * self._hop_s()
        crowd = crowded(box, streams) if self.transport is Transport.P2P else 1.0
        return latency_s + crowd * payload_bytes / (gbps * 1e9)

    def in_step_s(self, payload_bytes: float) -> float:
        """What an all-reduce of a decode step takes beyond ``seconds``: a broken box does worse in an engine."""
        if self.backend is not Backend.NCCL or not self._is_broken(self.choice(payload_bytes)[1]):
            return 0.0
        return self.box.broken_step_s

    def corrupts(self, payload_bytes: float) -> bool:
        """Whether the sums of this size are wrong: LL128 where the box does not bear it, false peer access."""
        if self.backend is Backend.CUSTOM and payload_bytes < _CUSTOM_BYTES:
            return self.box.p2p_corrupts and self.box.link is not Link.NVL
        by_nccl = self.backend is not Backend.NONE and not (
            self.backend is Backend.PCIE_IPC and payload_bytes <= _IPC_BYTES
        )
        return by_nccl and self.box.ll128_corrupts and self.choice(payload_bytes)[1] == "LL128"

    def may_corrupt(self) -> bool:
        """Whether ``corrupts`` can be true for any size."""
        return self.backend is not Backend.NONE and (self.box.ll128_corrupts or self.box.p2p_corrupts)

    def extra_buffer_bytes(self) -> int:
        """What the communicator takes of each card beyond its normal buffers: one to send and one to receive a channel.

        Assumed from NCCL's variables: more channels and larger buffers are paid with memory.
        """
        if self.backend is Backend.NONE:
            return 0
        normal = BROKEN_CHANNELS if self.graph is Graph.BROKEN else self.box.channels
        size = self.settings.buffer_bytes or _BUFFER_BYTES
        return max(0, 2 * (self.channels * size - normal * _BUFFER_BYTES))

    def _is_broken(self, protocol: str) -> bool:
        return self.graph is Graph.BROKEN and protocol == "Simple" and bool(self.box.broken_simple)

    def _hops(self) -> int:
        return 2 * (self.box.gpus - 1)

    def _hop_s(self) -> float:
        return {Transport.P2P: 0.0, Transport.SHM: self.box.shm_hop_s, Transport.NET: _NET_HOP_S}[self.transport]

    def _latency_us(self, algorithm: str, at: int) -> float:
        hop = HOP_US.get(self.box.link, PCIE_HOP_US)[at]
        return BASE_US[algorithm][at] + self._hops() * hop

    def _algorithm_gbps(self, algorithm: str, at: int, bus_gbps: float) -> float:
        ratio = self.box.gpus / max(1, self._hops())
        return bus_gbps * SHARE[at] * ratio * (TREE_SHARE if algorithm == "Tree" else 1.0)


def resolve(box: Box, environment: Mapping[str, str], *, hidden: int, custom: bool = True) -> AllReduce:
    """The all-reduce of an engine started on ``box`` under ``environment``; ``custom`` False is vLLM's switch for it.

    ``hidden`` is the model's hidden size.  A box that fails or hangs has the outcome, and a cost as if it had not.
    """
    effective = _batch_invariant(environment)
    settings = read_environment(effective, version_of(box.nccl_version), bears_ll128=box.link is Link.NVL)
    transport = _transport(box, settings)
    graph, failure = _graph(box, settings)
    channels = BROKEN_CHANNELS if graph is Graph.BROKEN else box.channels
    believed = channels * (BROKEN_GBPS if graph is Graph.BROKEN else box.channel_gbps)
    backend = _backend(box, effective, transport, hidden=hidden, custom=custom)
    outcome, reason = Outcome.READY, ""
    failure = settings.failure or failure
    if backend is not Backend.NONE and failure is not None:
        outcome, reason = Outcome.FAILS, failure
    elif backend is not Backend.NONE and transport is Transport.P2P and box.p2p_hangs:
        outcome, reason = Outcome.HANGS, "peer access is granted and does not work: the first all-reduce never ends"
    return AllReduce(
        box=box,
        settings=settings,
        backend=backend,
        transport=transport,
        graph=graph,
        channels=_clamped(channels, settings),
        gbps=_real_gbps(box, settings, channels=channels, transport=transport),
        believed_gbps=believed,
        outcome=outcome,
        reason=reason,
    )


def _batch_invariant(environment: Mapping[str, str]) -> Mapping[str, str]:
    if c_integer(environment.get("VLLM_BATCH_INVARIANT", "0")) != 1:
        return environment
    forced = {"NCCL_ALGO": "allreduce:tree", "NCCL_PROTO": "Simple"}
    return {**environment, **forced, "NCCL_MIN_NCHANNELS": "1", "NCCL_MAX_NCHANNELS": "1"}


def _transport(box: Box, settings: NcclSettings) -> Transport:
    default = "PXB" if version_of(box.nccl_version) >= _DEFAULT_LEVEL_SINCE else "SYS"
    level = settings.p2p_level or default
    if not settings.p2p_disable and LEVELS.index(box.link) <= LEVELS.index(level):
        return Transport.P2P
    return Transport.NET if settings.shm_disable else Transport.SHM


def _graph(box: Box, settings: NcclSettings) -> tuple[Graph, str | None]:
    if settings.graph_file is None:
        return box.graph, None
    # A simulated file is taken for one that was made on this box, unless its name gives another number of GPUs.
    name = settings.graph_file.rsplit("/", maxsplit=1)[-1]
    head, marker, _ = name.partition("gpu")
    digits = "".join(letter for letter in head[-2:] if letter.isdigit())
    if marker and digits and int(digits) != box.gpus:
        return Graph.HEALTHY, f"unhandled system error (graph file {name} does not fit {box.gpus} ranks)"
    return Graph.HEALTHY, None


def _clamped(channels: int, settings: NcclSettings) -> int:
    return min(max(channels, settings.min_ctas or 1), settings.max_ctas or 64)


def _real_gbps(box: Box, settings: NcclSettings, *, channels: int, transport: Transport) -> float:
    clamped = _clamped(channels, settings)
    spread = _SPREAD_GAIN if clamped >= 2 * channels else min(1.0, clamped / channels)
    share = {Transport.P2P: 1.0, Transport.SHM: box.shm_bandwidth_share, Transport.NET: _NET_SHARE}[transport]
    return box.channels * box.channel_gbps * spread * share


def _backend(box: Box, environment: Mapping[str, str], transport: Transport, *, hidden: int, custom: bool) -> Backend:
    if box.gpus == 1:
        return Backend.NONE
    peers = box.link is Link.NVL or (box.gpus == 2 and transport is Transport.P2P)
    if custom and peers and box.gpus in {2, 4, 6, 8}:
        return Backend.CUSTOM
    asked = environment.get("VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC", "0").strip() == "1"
    fits = box.sm == 120 and box.gpus in {2, 4, 8} and box.link is not Link.NVL
    tuned = (hidden, box.gpus) not in _IPC_UNTUNED
    if asked and fits and tuned and version_of(box.vllm_version) >= _IPC_SINCE:
        return Backend.PCIE_IPC
    return Backend.NCCL
