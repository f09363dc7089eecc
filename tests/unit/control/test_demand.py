"""Where places are needed: a key's weight is divided over the workers by where its requests are."""

from __future__ import annotations

import pytest

from gateway.control.demand import demand_of
from gateway.core.admission.shares import Want


def test_keys_that_are_at_one_worker_each_weigh_there_in_full() -> None:
    found = demand_of({0: {"p": {"a": (5, 1)}}, 1: {"p": {"b": (7, 0)}}}, {"b": 3.0})
    assert found.wants == {"p": {0: Want(5, 1.0), 1: Want(7, 3.0)}}
    assert found.parts == {}


def test_a_key_at_two_workers_weighs_at_each_by_its_part() -> None:
    found = demand_of({0: {"p": {"a": (3, 0)}}, 1: {"p": {"a": (0, 1), "b": (2, 2)}}}, {"a": 2.0})
    assert found.wants["p"][0].weight == pytest.approx(1.5)
    assert found.wants["p"][1].weight == pytest.approx(1.5)
    assert found.parts == {0: {"p": {"a": 0.75}}, 1: {"p": {"a": 0.25}}}


def test_a_small_part_is_never_told_as_none() -> None:
    found = demand_of({0: {"p": {"a": (99, 0)}}, 1: {"p": {"a": (1, 0)}}}, {})
    assert found.parts[1] == {"p": {"a": 0.05}}


def test_nobody_s_demand_is_none() -> None:
    found = demand_of({0: {}, 1: {"p": {}}}, {})
    assert found.wants == {"p": {1: Want(0, 1e-6)}}
