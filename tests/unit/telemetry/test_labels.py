"""Closed sets of label values."""

from __future__ import annotations

from gateway.telemetry.labels import OTHER, ClosedSet


def test_only_allowed_names_are_labels() -> None:
    names = ClosedSet(["a"])
    names.allow(["b"])
    assert [names.label(name) for name in ("a", "b", "c")] == ["a", "b", OTHER]


def test_no_name_is_a_label_of_its_own() -> None:
    assert ClosedSet(["a"]).label("") == ""


def test_the_set_is_bounded() -> None:
    names = ClosedSet(limit=2)
    names.allow(f"m{number}" for number in range(10))
    assert [names.label(f"m{number}") for number in range(4)] == ["m0", "m1", OTHER, OTHER]
