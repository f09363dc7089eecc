"""NCCL's lines at INFO: enough to predict a profile from, and no number that the model does not use."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from gateway.simulator.nccl import resolve
from gateway.simulator.nccl_log import info_lines
from gateway.simulator.presets import Box, Graph
from tests.fakes.presets import preset

BOX = preset().box
ALL = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,GRAPH,TUNING,ENV"}


def lines(environment: dict[str, str], *, box: Box = BOX) -> list[str]:
    return info_lines(resolve(box, environment, hidden=7168), environment, host="vm", pid=601)


def first(found: list[str], pattern: str) -> re.Match[str]:
    return next(match for line in found if (match := re.search(pattern, line)))


def test_nothing_is_printed_unless_asked_for_or_without_a_communicator() -> None:
    assert lines({}) == []
    assert lines({"NCCL_DEBUG": "WARN"}) == []
    assert lines(ALL, box=replace(BOX, gpus=1)) == []


def test_the_table_holds_what_the_choice_is_made_by() -> None:
    found = lines(ALL)
    row = next(line for line in found if re.search(r"INFO +AllReduce \|", line))
    cells = [tuple(float(part) for part in cell.split("/")) for cell in row.split("|")[1:7]]
    assert cells[3] == pytest.approx((20.6, 27.4), abs=0.05)  # ring, LL
    assert cells[4][1] == 0.0  # LL128 is not eligible
    best = min((latency + 14_336 / (gbps * 1e3), at) for at, (latency, gbps) in enumerate(cells) if gbps)
    assert best[1] == 3


@pytest.mark.parametrize(
    "graph, count, bandwidth, kind", [(Graph.HEALTHY, 4, 24.0, "SYS/PIX"), (Graph.BROKEN, 2, 0.1, "SYS/SYS")]
)
def test_the_graph_tells_a_broken_search(graph: Graph, count: int, bandwidth: float, kind: str) -> None:
    found = lines(ALL, box=replace(BOX, graph=graph))
    match = first(found, r"Pattern 4, .* nChannels (\d+), bw ([\d.]+)/[\d.]+, type (\S+),")
    assert (int(match[1]), float(match[2]), match[3]) == (count, bandwidth, kind)


@pytest.mark.parametrize(
    "environment, via",
    [({}, "SHM/direct/direct"), ({"NCCL_P2P_LEVEL": "SYS"}, "P2P/CUMEM"), ({"NCCL_SHM_DISABLE": "1"}, "NET/Socket/0")],
)
def test_the_channels_tell_the_transport(environment: dict[str, str], via: str) -> None:
    assert first(lines({**ALL, **environment}), r"Channel 00/0 : 0\[0\] -> 1\[1\] via (\S+)")[1] == via


def test_without_subsystems_it_prints_init_and_environment_and_with_all_everything() -> None:
    few = lines({"NCCL_DEBUG": "info", "NCCL_P2P_LEVEL": "SYS"})
    assert any("NCCL_P2P_LEVEL set by environment to SYS" in line for line in few)
    assert not any("Pattern" in line or "Max NThreads" in line for line in few)
    assert lines({**ALL, "NCCL_DEBUG_SUBSYS": "ALL"}) == lines(ALL)
    only = lines({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "GRAPH"})
    assert all("Pattern" in line for line in only)


def test_the_matrix_shows_what_was_allowed_for_each_function() -> None:
    text = "\n".join(lines({**ALL, "NCCL_PROTO": "LL,Simple;allreduce:LL"}))
    assert re.search(r"AllGather \|\s+1\s+0\s+1 ", text)
    assert re.search(r"AllReduce \|\s+1\s+0\s+0 ", text)


@pytest.mark.parametrize("level", ["INFO", "WARN"])
def test_a_failure_is_warned_of(level: str) -> None:
    found = lines({"NCCL_DEBUG": level, "NCCL_PROTO": "LL, Simple"})
    assert "NCCL WARN NCCL_PROTO" in found[-1]
    assert not any("Channel" in line for line in found)
