"""The one sentence of the status: the worst comes first."""

from __future__ import annotations

import pytest

from gateway.control.summary import summary_of, summary_of_stop
from gateway.ports import PoolReport, WorkerReport


def a_pool(name: str, serving: int, backends: int = 2, *, least: int = 1, unreported: str = "") -> PoolReport:
    names = tuple(unreported)
    return PoolReport(
        name=name, models=names, serving=serving, backends=backends, min_available=least, unreported=names
    )


def a_worker(*, fresh: bool) -> WorkerReport:
    return WorkerReport(
        slot=0, pid=1, started_wall=0.0, generation=1, in_flight=0, connections=0, dropped=0, fresh=fresh
    )


FRESH, SILENT = a_worker(fresh=True), a_worker(fresh=False)


@pytest.mark.parametrize(
    "pools,workers,problem,sentence",
    [
        ([a_pool("p", 0), a_pool("q", 2)], [FRESH], "", "DOWN: no backend serves pool p"),
        ([a_pool("p", 0), a_pool("q", 0)], [], "", "DOWN: no backend serves pools p, q"),
        ([a_pool("p", 2)], [], "", "DOWN: no worker is connected"),
        ([a_pool("p", 2)], [SILENT], "", "DOWN: no worker answers"),
        ([a_pool("p", 2, unreported="m")], [], "", "DOWN: no worker is connected"),
        (
            [a_pool("q", 1, least=2), a_pool("p", 2, unreported="m")],
            [FRESH, SILENT],
            "full",
            "no backend of pool p reports model m: is the name right?",
        ),
        (
            [a_pool("p", 2, unreported="abcdefg")],
            [FRESH],
            "",
            "no backend of pool p reports models a, b, c and 4 more: is the name right?",
        ),
        ([a_pool("p", 1, least=2)], [FRESH], "full", "short: fewer backends than wanted serve pool p"),
        ([a_pool("p", 2)], [FRESH, SILENT], "full", "a worker does not answer; the others serve"),
        ([a_pool("p", 2)], [FRESH], "disk full", "serving, but requests are not recorded: disk full"),
        ([a_pool("p", 1)], [FRESH], "", "serving with 1 of 2 backends, 3 requests in flight"),
        ([a_pool("p", 2), a_pool("q", 2)], [FRESH], "", "all well: 4 of 4 backends serve, 3 requests in flight"),
    ],
)
def test_the_worst_is_told(pools: list[PoolReport], workers: list[WorkerReport], problem: str, sentence: str) -> None:
    assert summary_of(pools, workers, in_flight=3, store_problem=problem) == sentence


def test_one_request_is_one_request() -> None:
    assert summary_of([a_pool("p", 2)], [FRESH], in_flight=1, store_problem="").endswith("1 request in flight")


@pytest.mark.parametrize(
    "in_flight, left_s, sentence",
    [
        (3, 11.2, "stopping: 3 requests in flight, cut off in 12 s"),
        (1, 0.4, "stopping: 1 request in flight, cut off in 1 s"),
        (2, 0.0, "stopping: 2 requests in flight, being cut off now"),
        (0, 30.0, "stopping: nothing is open any more"),
    ],
)
def test_a_stop_says_how_far_it_is(in_flight: int, left_s: float, sentence: str) -> None:
    assert summary_of_stop(in_flight, left_s) == sentence
