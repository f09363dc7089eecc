"""The shapes of what a run found, as they stand in its JSON file. Values only.

Each record is one relay in one round; sums over rounds are made when the table is written, so that the file keeps
everything that was measured.
"""

from __future__ import annotations

import msgspec


class CostRound(msgspec.Struct, frozen=True, kw_only=True):
    """CPU per unit of work in one measurement window. A unit is a relayed event, or an answered short request."""

    relay: str
    kind: str
    level: int
    number: int
    window_s: float
    units: int
    cpu_us: dict[str, float]
    """CPU microseconds per unit by role of the process."""
    waited_share: float
    """Time the relay's threads were runnable but not running, over their CPU time: how contended its core was."""
    load_core_busy: float
    """Share of the window the engine and the client were computing (they share a core)."""
    foreign_share: float
    """Busy share of both cores that no process of the run explains, in cores."""
    lag_p50_us: float | None
    """Events only: from the engine's write to the client's read."""
    lag_p99_us: float | None
    failures: list[str]

    @property
    def total_us(self) -> float:
        """CPU microseconds per unit over all processes of the relay."""
        return sum(self.cpu_us.values())

    @property
    def worker_us(self) -> float:
        """CPU microseconds per unit of the process that relays."""
        return self.cpu_us.get("worker", self.total_us)


class LatencyRound(msgspec.Struct, frozen=True, kw_only=True):
    """Times to first event and one-way lags of events (sent by the engine to seen by the client), microseconds."""

    relay: str
    level: int
    number: int
    ttft_p50_us: float | None
    ttft_p99_us: float | None
    probes: int
    lag_p50_us: float | None
    lag_p99_us: float | None
    lags: int
    failures: list[str]


class PacePair(msgspec.Struct, frozen=True, kw_only=True):
    """Token rates of a single stream, direct and through the relay, one right after the other."""

    relay: str
    number: int
    direct_tps: float
    relayed_tps: float


class MemoryFigure(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of a relay by role: at rest after the cost rounds, and with idle streams open."""

    relay: str
    resident_bytes: dict[str, int]
    proportional_bytes: dict[str, int]
    idle_streams: int
    bytes_per_idle_stream: float | None


class PromptRound(msgspec.Struct, frozen=True, kw_only=True):
    """Long prompts one after the other, beside a stream that steps every millisecond; microseconds."""

    relay: str
    shape: str
    number: int
    prompts: int
    answer_p50_us: float | None
    """From the first byte sent to the whole short answer."""
    answer_p99_us: float | None
    stall_p50_us: float | None
    """The longest that an event of the stream was under way while a prompt was dealt with; median of the prompts."""
    stall_worst_us: float | None
    quiet_p99_us: float | None
    """How long the stream's events are under way while there is no prompt."""
    failures: list[str]


class WorkersRound(msgspec.Struct, frozen=True, kw_only=True):
    """Throughput of a gateway with some number of workers, all of them busy."""

    workers: int
    kind: str
    """`streams` (a unit is an event) or `requests` (a unit is an answered short request)."""
    number: int
    per_s: float
    worker_busy: list[float]
    """Share of the window that each worker computed."""
    rest_busy: float
    """The same of control and supervisor together."""
    engine_busy: float
    """The same of the busiest engine process."""
    client_busy: float
    """The same of the busiest client process."""
    failures: int

    @property
    def capacity_per_s(self) -> float:
        """Units a second if all workers were busy all the time, at the cost that they had."""
        busy = sum(self.worker_busy)
        return self.per_s * len(self.worker_busy) / busy if busy else 0.0


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Where and when a run took place."""

    date: str
    cpu_model: str
    cores: int
    kernel: str
    python: str
    revision: str
    load_average: float
    cores_apart: int = 0
    """Physical cores that this run may use; hardware threads of one core count once. 0: not known."""


class Run(msgspec.Struct, kw_only=True):
    """Everything one run found; filled round by round."""

    machine: Machine
    settings: dict[str, bool | float | str]
    missing: dict[str, str] = {}
    notes: dict[str, str] = {}
    costs: list[CostRound] = []
    latencies: list[LatencyRound] = []
    paces: list[PacePair] = []
    memories: list[MemoryFigure] = []
    prompts: list[PromptRound] = []
    workers: list[WorkersRound] = []
    tap_us: list[float] = []
    """The tap alone, CPU microseconds per plain chat chunk, one figure a repeat."""
    skipped: dict[str, str] = {}
    """What was left out, by its name, and why."""
    warnings: list[str] = []
    wall_s: float = 0.0
