"""How NCCL reads its variables, by version."""

from __future__ import annotations

import pytest

from gateway.simulator.nccl_env import NcclSettings, c_integer, read_environment, version_of

CURRENT = (2, 30, 7)


def read(environment: dict[str, str], version: tuple[int, ...] = CURRENT) -> NcclSettings:
    return read_environment(environment, version)


@pytest.mark.parametrize(
    "text, number",
    [("1", 1), ("true", 0), ("8x", 8), ("010", 8), ("0x10", 16), ("-3", -3), ("", 0), (" 7", 7), ("+2", 2), ("0", 0)],
)
def test_integers_are_read_as_c_reads_them(text: str, number: int) -> None:
    assert c_integer(text) == number


def test_versions_are_compared_by_number() -> None:
    assert version_of("2.30.7+cuda13.0") == (2, 30, 7)
    assert version_of("2.9.1") < version_of("2.28.9")


def test_nothing_set_is_the_default() -> None:
    settings = read({})
    assert settings.protocols["AllReduce"] == (1, 2, 1)
    assert settings.algorithms["AllReduce"][:2] == (1, 1)
    assert settings.failure is None
    assert settings.said == ()


@pytest.mark.parametrize(
    "environment",
    [
        {"NCCL_PROTO": "LL, Simple"},
        {"NCCL_PROTO": "LL;Simple"},
        {"NCCL_PROTO": "alreduce:LL"},
        {"NCCL_ALGO": "Rings"},
        {"NCCL_ALGO": "Tree"},
        {"NCCL_ALGO": "NVLS"},
        {"NCCL_PROTO": "^LL,LL128,Simple"},
    ],
)
def test_from_2_24_a_bad_list_fails(environment: dict[str, str]) -> None:
    assert read(environment).failure is not None


@pytest.mark.parametrize("environment", [{"NCCL_PROTO": "LL, Simple"}, {"NCCL_ALGO": "Tree"}, {"NCCL_PROTO": "What"}])
def test_before_2_24_a_bad_list_is_ignored_or_falls_back(environment: dict[str, str]) -> None:
    settings = read(environment, (2, 23, 4))
    assert settings.failure is None
    assert settings.protocols["AllGather"][0] == 1
    assert settings.algorithms["AllGather"][1] == 1


def test_the_first_failure_is_kept() -> None:
    failure = read({"NCCL_PROTO": "bad", "NCCL_ALGO": "worse"}).failure
    assert failure is not None
    assert "NCCL_PROTO" in failure


def test_entries_by_function_change_that_function_only() -> None:
    settings = read({"NCCL_PROTO": "LL,Simple;allreduce:LL"})
    assert settings.protocols["AllReduce"] == (1, 0, 0)
    assert settings.protocols["AllGather"] == (1, 0, 1)
    assert read({"NCCL_PROTO": "AllReduce:ll"}).protocols["Broadcast"] == (1, 2, 1)


def test_a_caret_allows_what_it_does_not_name() -> None:
    assert read({"NCCL_PROTO": "^Simple"}).protocols["AllReduce"] == (1, 1, 0)


def test_2_31_clears_the_functions_that_the_list_of_algorithms_does_not_name() -> None:
    trap = {"NCCL_ALGO": "allreduce:tree", "NCCL_PROTO": "LL,Simple"}
    portable = {"NCCL_ALGO": "ring,tree;allreduce:tree", "NCCL_PROTO": "LL,Simple;allreduce:LL"}
    assert read(trap).failure is None
    assert "AllGather" in (read(trap, (2, 31, 0)).failure or "")
    assert read(portable, (2, 31, 0)).failure is None


@pytest.mark.parametrize(
    "environment, low, high",
    [
        ({"NCCL_MIN_CTAS": "16", "NCCL_MAX_CTAS": "32"}, 16, 32),
        ({"NCCL_MIN_NCHANNELS": "4"}, 4, None),
        ({"NCCL_MIN_CTAS": "0"}, None, None),
        ({"NCCL_MIN_CTAS": "-2"}, None, None),
        ({"NCCL_MAX_CTAS": "100"}, None, 64),
        ({"NCCL_MIN_CTAS": "20", "NCCL_MAX_CTAS": "8"}, 8, 8),
    ],
)
def test_channel_limits_are_capped_swapped_and_ignored_as_in_nccl(
    environment: dict[str, str], low: int | None, high: int | None
) -> None:
    settings = read(environment)
    assert (settings.min_ctas, settings.max_ctas) == (low, high)


def test_before_2_25_the_cap_is_32() -> None:
    assert read({"NCCL_MAX_CTAS": "64"}, (2, 24, 3)).max_ctas == 32


def test_what_is_set_is_said_and_numbers_as_they_were_read() -> None:
    said = read({"NCCL_P2P_DISABLE": "true", "NCCL_P2P_LEVEL": "sys", "NCCL_MISSPELT": "1"}).said
    assert said == ("NCCL_P2P_LEVEL set by environment to sys", "NCCL_P2P_DISABLE set by environment to 0.")
