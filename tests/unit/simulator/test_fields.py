from __future__ import annotations

from typing import Any

import pytest

from gateway.simulator.fields import Reader


@pytest.mark.parametrize(
    "value,told", [("yes", True), ("0", False), (1, True), (None, False), (True, True), ("x", None), ([], None)]
)
def test_booleans_are_read_as_vllm_reads_them(value: Any, told: bool | None) -> None:
    reader = Reader({"a": value})
    assert reader.boolean("a") is bool(told)
    assert bool(reader.faults) is (told is None)


@pytest.mark.parametrize(
    "value,told", [(3, 3), ("+4", 4), (3.0, 3), (None, None), (3.5, None), ("x", None), ([], None)]
)
def test_whole_numbers_are_read_as_vllm_reads_them(value: Any, told: int | None) -> None:
    reader = Reader({"a": value})
    assert reader.integer("a") == told
    assert bool(reader.faults) is (told is None and value is not None)


def test_numbers_mappings_and_lists_of_another_kind_are_faults() -> None:
    reader = Reader({"a": "x", "b": [], "c": 5, "d": {}, "e": ["x"], "f": 1})
    assert [reader.number("a"), reader.number("b"), reader.mapping("c")] == [None, None, None]
    assert [reader.elements("d"), reader.objects("e")] == [[], []]
    assert reader.number("f") == 1.0
    assert [fault.kind for fault in reader.faults] == [
        "float_parsing", "float_type", "dict_type", "list_type", "model_attributes_type"
    ]  # fmt: skip
