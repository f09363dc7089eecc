"""Several runs made one page: rounds count on, what one run has is not missing, two machines are refused."""

import msgspec
import pytest

from benchmarks import report
from benchmarks.merge import merged
from tests.benchmarks.test_targets import cost, empty, with_workers


def test_rounds_of_the_second_run_count_on_and_ratios_stay_inside_a_round() -> None:
    first, second = empty(), empty()
    first.costs = [cost("nginx", 20.0), cost("pacekeeper", 38.0)]
    second.costs = [cost("nginx", 40.0), cost("pacekeeper", 38.0)]
    whole = merged([first, second])
    assert [one.number for one in whole.costs] == [0, 0, 1, 1]
    whole.notes = {"nginx": "C", "pacekeeper": "ours"}
    whole.settings = {"streams": 64, "pace_ms": 25.0}
    assert "1.50 (1.00-2.00)" in report.markdown(whole)


def test_a_relay_is_missing_only_where_every_run_misses_it() -> None:
    first, second = empty(), empty()
    first.notes = second.notes = {"smg": "Rust", "litellm": "Python"}
    first.missing = {"smg": "not installed", "litellm": "too large"}
    second.missing = {"litellm": "too large"}
    assert merged([first, second]).missing == {"litellm": "too large"}


def test_what_one_run_measured_is_not_left_out() -> None:
    first, second = empty(), empty()
    first.skipped = {"P9 with 1 workers": "too few cores", "P9 with 8 workers": "too few cores"}
    second.workers = [with_workers(1, 100.0)]
    assert merged([first, second]).skipped == {"P9 with 8 workers": "too few cores"}


def test_figures_of_two_machines_are_not_mixed() -> None:
    other = empty()
    other.machine = msgspec.structs.replace(other.machine, cpu_model="another")
    with pytest.raises(ValueError, match="two machines"):
        merged([empty(), other])
