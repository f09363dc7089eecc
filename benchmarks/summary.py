"""Sums over the rounds of a run, and how they are shown: what the tables and the targets have in common.

Rounds with failures measured something else than the work they stand for and do not count. Pure.
"""

from __future__ import annotations

from benchmarks.figures import Spread, ratios, spread
from benchmarks.machine import quietest
from benchmarks.results import CostRound, Run

NONE = "-"


def shown(value: Spread | None, digits: int = 1) -> str:
    """Median, smallest and largest, as the tables show them."""
    if value is None:
        return NONE
    return f"{value.median:.{digits}f} ({value.low:.{digits}f}-{value.high:.{digits}f})"


def number(value: float | None, digits: int = 0) -> str:
    """A single figure, as the tables show it."""
    return NONE if value is None else f"{value:.{digits}f}"


class Costs:
    """The cost rounds of one kind and level, by relay and round."""

    def __init__(self, run: Run, kind: str, level: int | None = None) -> None:
        rounds = [cost for cost in quietest(run.costs) if cost.kind == kind and level in {None, cost.level}]
        self.count = max((cost.number + 1 for cost in rounds), default=0)
        self.by_relay: dict[str, dict[int, CostRound]] = {}
        for cost in rounds:
            # A round with failures measured something else than the work it stands for.
            if not cost.failures and cost.units:
                self.by_relay.setdefault(cost.relay, {})[cost.number] = cost

    def values(self, relay: str, figure: str) -> list[float | None]:
        """`total_us` or `worker_us` by round; None where the round is missing."""
        found = self.by_relay.get(relay, {})
        return [getattr(found[number], figure) if number in found else None for number in range(self.count)]

    def spread(self, relay: str, figure: str) -> Spread | None:
        """The figure's spread over the rounds."""
        return spread([value for value in self.values(relay, figure) if value is not None])

    def ratio(self, relay: str, reference: str, *, figure: str) -> Spread | None:
        """The figure over the reference's total, round by round."""
        return ratios(self.values(relay, figure), self.values(reference, "total_us"))

    def split(self, relay: str) -> str:
        """Medians by role, where there is more than one."""
        rounds = list(self.by_relay.get(relay, {}).values())
        names = list(dict.fromkeys(role for cost in rounds for role in cost.cpu_us))
        if len(names) < 2:
            return NONE
        medians = {name: spread([cost.cpu_us.get(name, 0.0) for cost in rounds]) for name in names}
        return ", ".join(f"{name} {number(value.median, 1)}" for name, value in medians.items() if value)


def latency_medians(run: Run, relay: str, level: int) -> dict[str, float | None]:
    """Medians over the rounds of the four latency figures, by their names in `LatencyRound`; microseconds."""
    rounds = [one for one in run.latencies if (one.relay, one.level) == (relay, level) and not one.failures]
    names = ("ttft_p50_us", "ttft_p99_us", "lag_p50_us", "lag_p99_us")
    found: dict[str, float | None] = {}
    for name in names:
        value = spread([figure for one in rounds if (figure := getattr(one, name)) is not None])
        found[name] = value.median if value else None
    return found
