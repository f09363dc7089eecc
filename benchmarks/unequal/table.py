"""What all windows found, as a Markdown table a scene: medians over the rounds, every load and policy. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Final

from benchmarks.report import table
from benchmarks.unequal.figures import Figures
from benchmarks.unequal.scenes import POLICIES
from benchmarks.unequal.session import QUIET_SHARE, Window
from gateway.core.routing.policy import Policy

_BUSY_CORES: Final = 0.85

_COLUMNS: Final[tuple[tuple[str, Callable[[Figures], float], str], ...]] = (
    ("moment p50", lambda it: it.moment_p50_tps, ".1f"),
    ("moment mid", lambda it: it.moment_mid_tps, ".1f"),
    ("moment p10", lambda it: it.moment_p10_tps, ".1f"),
    ("moment mean", lambda it: it.moment_mean_tps, ".1f"),
    ("answer p50", lambda it: it.answer_p50_tps, ".1f"),
    ("answer p10", lambda it: it.answer_p10_tps, ".1f"),
    ("total tok/s", lambda it: it.total_tps, ",.0f"),
    ("TTFT p50, s", lambda it: it.ttft_p50_s, ".2f"),
    ("TTFT p95, s", lambda it: it.ttft_p95_s, ".2f"),
)


def of_scene(windows: Sequence[Window]) -> str:
    """The table of the windows of one scene; beside each figure of the others its difference to least in-flight."""
    loads = list(dict.fromkeys(it.load for it in windows))
    header = ["load", "policy", *(name for name, _, _ in _COLUMNS), "answers by"]
    rows = []
    for load in loads:
        base = _of(windows, load, Policy.LEAST_IN_FLIGHT)
        rows.append(_row(load, Policy.LEAST_IN_FLIGHT, base, base=()))
        rows += [_row(load, policy, _of(windows, load, policy), base=base) for policy in POLICIES[1:]]
    return table(header, [row for row in rows if row])


def _of(windows: Sequence[Window], load: str, policy: Policy) -> list[Figures]:
    return [it.figures for it in windows if (it.load, it.policy) == (load, policy.value)]


def _row(load: str, policy: Policy, found: Sequence[Figures], *, base: Sequence[Figures]) -> list[str]:
    if not found:
        return []
    cells = []
    for _, figure, form in _COLUMNS:
        value = median(map(figure, found))
        cell = f"{value:{form}}"
        if base:
            cell += f" ({value / median(map(figure, base)) - 1:+.0%})"
        cells.append(cell)
    names = list(found[0].shares)
    shares = (f"{name} {median(it.shares.get(name, 0.0) for it in found):.0%}" for name in names)
    return [load, policy.value, *cells, ", ".join(shares)]


def warnings(windows: Sequence[Window]) -> list[str]:
    """Every doubt: an engine or the machine that may not have kept up."""
    found = []
    for it in windows:
        where = f"{it.scene}, {it.load}, {it.policy}, round {it.round + 1}"
        if it.engine_cores > _BUSY_CORES:
            found.append(f"{where}: an engine took {it.engine_cores:.2f} cores: it may have been the limit")
        if it.waited_share > QUIET_SHARE:
            found.append(
                f"{where}: engines and gateway waited for a core for {it.waited_share:.0%} of the time they ran"
            )
    return found
