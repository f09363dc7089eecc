"""The picture of a run is well-formed, shows each relay with its figure, and is left out where there is nothing."""

from xml.etree import ElementTree as ET

from benchmarks.picture import picture
from tests.benchmarks.test_targets import cost, empty, latency, with_workers

SVG = "{http://www.w3.org/2000/svg}"


def texts(drawn: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(drawn).iter(f"{SVG}text")]


def test_a_run_without_figures_has_no_picture() -> None:
    assert picture(empty()) == ""


def test_each_relay_is_a_row_with_its_figure_and_the_least_comes_first() -> None:
    run = empty()
    run.costs = [cost("pacekeeper", 24.0), cost("nginx", 20.0), cost("litellm", 687.0)]
    run.latencies = [latency("direct", 100.0), latency("nginx", 150.0), latency("pacekeeper", 300.0)]
    shown = texts(picture(run))
    first = shown.index("nginx")
    assert [text for text in shown[first:] if text in {"nginx", "pacekeeper", "litellm"}][:3] == [
        "nginx",
        "pacekeeper",
        "litellm",
    ]
    assert {"20.0", "26.0", "687"} <= set(shown), "all processes: 24 of the worker and 2 of control"
    assert "Latency added to a chunk" in shown


def test_workers_are_drawn_once_there_are_two_numbers_of_them() -> None:
    run = empty()
    run.workers = [with_workers(1, 1000.0)]
    assert picture(run) == ""
    run.workers += [with_workers(2, 1900.0), *(with_workers(n, 20.0 * n, kind="streams") for n in (1, 2))]
    assert "Throughput with several workers" in texts(picture(run))
