"""Faults: how a place and a path read, and which name was meant."""

from __future__ import annotations

import pytest

from gateway.errors import ConfigError
from gateway.settings.faults import Fault, nearest, refuse, spell, suggest


def test_a_fault_reads_as_place_path_and_message() -> None:
    fault = Fault("f.yaml", ("pools", 0, "url"), "bad", line=3, column=7)
    assert str(fault) == "f.yaml:3:7 pools[0].url: bad"
    assert str(Fault("environment X", (), "bad")) == "environment X: bad"


def test_a_key_that_is_no_plain_text_cannot_forge_a_line() -> None:
    assert spell(("a", "b\nc", "d.e", "")) == "a.'b\\nc'.'d.e'.''"


@pytest.mark.parametrize("key, meant", [("urll", "url"), ("API-KEY-ENV", "api_key_env"), ("zzz", None)])
def test_the_nearest_name_is_found(key: str, meant: str | None) -> None:
    assert nearest(key, ["name", "url", "api_key_env"]) == meant


def test_an_unknown_key_is_answered_with_what_was_probably_meant() -> None:
    assert suggest("urll", ["name", "url"]) == 'unknown key; did you mean "url"?'
    assert (
        suggest("stall_s", ["name", "url"], homes=["timers.stall_s"])
        == "unknown key here; did you mean timers.stall_s?"
    )
    assert suggest("zzz", ["name", "url"], homes=["a.zzz", "b.zzz"]) == "unknown key; known here: name, url"


def test_faults_come_in_the_order_of_the_file_and_once_each() -> None:
    late, early = Fault("f", (), "late", line=9, column=1), Fault("f", (), "early", line=2, column=5)
    with pytest.raises(ConfigError) as caught:
        refuse([Fault("environment X", (), "none"), late, early, late])
    assert caught.value.message.splitlines() == ["f:2:5: early", "f:9:1: late", "environment X: none"]


def test_no_faults_refuse_nothing() -> None:
    assert refuse(iter(())) is None  # type: ignore[func-returns-value]
