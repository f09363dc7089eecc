"""The environment: what wins, what is decoded how, and which variables are refused."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.errors import ConfigError
from gateway.settings import Settings, parse
from gateway.settings.environment import overlay, variables

GOOD = """\
timers: {stall_s: 90}
pools:
  - name: main
    backends:
      - {name: a, url: "http://127.0.0.1:8001"}
"""

BAD_HOST = 'the host must be an IP address of this machine: "127.0.0.1:8080", "[::1]:8080" or "unix:/path"'


def settings(text: str = GOOD, **environ: str) -> Settings:
    return parse(text, "f.yaml", environ=environ)


def faults(**environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        settings(**environ)
    return caught.value.message.splitlines()


def test_a_variable_wins_over_the_file_and_leaves_its_neighbours() -> None:
    found = settings(GOOD.replace("90}", "90, total_s: 7}"), PACEKEEPER_TIMERS__STALL_S="60")
    assert found.runtime.timers.stall_s == 60
    assert found.runtime.timers.total_s == 7


def test_a_variable_fills_a_section_that_the_file_leaves_empty() -> None:
    assert settings(GOOD + "log:\n", PACEKEEPER_LOG__LEVEL="debug").install.log.level == "debug"


@pytest.mark.parametrize(
    "given",
    ["127.0.0.1:1,[::1]:2", " 127.0.0.1:1 , [::1]:2 ", '["127.0.0.1:1", "[::1]:2"]'],
    ids=["commas", "blanks", "json"],
)
def test_a_list_takes_commas_or_json(given: str) -> None:
    assert settings(PACEKEEPER_CLIENTS__LISTEN=given).install.clients.listen == ("127.0.0.1:1", "[::1]:2")


def test_a_section_and_the_pools_take_json() -> None:
    pools = '[{"name": "other", "backends": [{"name": "b", "url": "http://127.0.0.1:9"}]}]'
    found = settings(
        "", PACEKEEPER_POOLS=pools, PACEKEEPER_STORE='{"keep_days": 3}', PACEKEEPER_STORE__KEEP_BYTES="1 MiB"
    )
    assert found.runtime.pools[0].name == "other"
    assert (found.install.store.keep_days, found.install.store.keep_bytes) == (3, 1024**2)


def test_an_empty_variable_is_not_set() -> None:
    assert settings(PACEKEEPER_TIMERS__STALL_S="", PACEKEEPER_NONSENSE="").runtime.timers.stall_s == 90


@pytest.mark.parametrize(
    "name, value, expected",
    [
        ("PACEKEEPER_PROBES__FALL", "x", "environment PACEKEEPER_PROBES__FALL probes.fall: must be a whole number"),
        ("PACEKEEPER_WORKERS", "x", 'environment PACEKEEPER_WORKERS workers: must be a whole number or "auto"'),
        ("PACEKEEPER_STORE", "x", "environment PACEKEEPER_STORE store: must be a mapping of keys and values"),
        ("PACEKEEPER_STORE", "{x", "environment PACEKEEPER_STORE store: must be a mapping of keys and values"),
        ("PACEKEEPER_POOLS__0__NAME", "x", "environment PACEKEEPER_POOLS__0__NAME pools: must be a list"),
        (
            "PACEKEEPER_CLIENTS__LISTEN",
            "127.0.0.1:1,example.org:2",
            f"environment PACEKEEPER_CLIENTS__LISTEN clients.listen[1]: {BAD_HOST}",
        ),
        (
            "PACEKEEPER_CLIENTS__LISTNE",
            "x",
            'environment PACEKEEPER_CLIENTS__LISTNE clients.listne: unknown key; did you mean "listen"?',
        ),
        (
            "PACEKEEPER_CLIENT__LISTEN",
            "x",
            "environment PACEKEEPER_CLIENT__LISTEN: this variable sets nothing; did you mean PACEKEEPER_CLIENTS__LISTEN?",
        ),
        (
            "PACEKEEPER_WORKERS__COUNT",
            "2",
            "environment PACEKEEPER_WORKERS__COUNT: this variable sets nothing; did you mean PACEKEEPER_WORKERS?",
        ),
        ("PACEKEEPER_ZZZZZZZZZZZZZZZZZZ", "2", "environment PACEKEEPER_ZZZZZZZZZZZZZZZZZZ: this variable sets nothing"),
    ],
)
def test_a_bad_variable_is_named(name: str, value: str, expected: str) -> None:
    assert faults(**{name: value}) == [expected]


def test_a_fault_in_the_file_is_not_blamed_on_the_environment() -> None:
    with pytest.raises(ConfigError) as caught:
        settings(GOOD + "workers: two\n", PACEKEEPER_WORKERS__X="1", PACEKEEPER_TIMERS__STALL_S="9")
    assert caught.value.message.splitlines()[0] == 'f.yaml:6:10 workers: must be a whole number or "auto"'


def test_what_the_commands_read_is_no_fault() -> None:
    found = settings(
        PACEKEEPER_CONFIG="x", PACEKEEPER_TOKEN="x", PACEKEEPER_TOKEN_FILE="x", PACEKEEPER_OPERATORS_URL="x"
    )
    assert found == settings()


def test_what_kubernetes_sets_for_a_service_is_no_fault() -> None:
    found = settings(
        PACEKEEPER_SERVICE_HOST="10.0.0.1",
        PACEKEEPER_SERVICE_PORT="8080",
        PACEKEEPER_SERVICE_PORT_HTTP="8080",
        PACEKEEPER_PORT="tcp://10.0.0.1:8080",
        PACEKEEPER_PORT_8080_TCP_ADDR="10.0.0.1",
        PACEKEEPER_OPS_SERVICE_HOST="10.0.0.2",
    )
    assert found == settings()


def test_a_key_variable_that_the_file_names_is_no_fault() -> None:
    text = GOOD.replace('8001"}', '8001", api_key_env: PACEKEEPER_ENGINE_KEY}')
    found = settings(text, PACEKEEPER_ENGINE_KEY="secret")
    assert found.runtime.pools[0].backends[0].api_key_env == "PACEKEEPER_ENGINE_KEY"
    assert found.overrides == (), "it is a key, not a setting"


def test_every_listed_variable_is_known() -> None:
    names = list(variables())
    assert "PACEKEEPER_CLIENTS__LISTEN" in names
    assert not any("NAME" in name.split("__")[-1] and "POOLS" in name for name in names)
    for name in names:
        try:
            settings(**{name: "x"})
        except ConfigError as error:
            assert "sets nothing" not in error.message  # noqa: PT017 - some refuse the value, none the name


@pytest.mark.parametrize(
    "below, above, merged",
    [
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}}, {"a": {"b": 1, "c": 3}}),
        ({"a": None}, {"a": {"c": 3}}, {"a": {"c": 3}}),
        ({"a": [1]}, {"a": {"c": 3}}, {"a": {"c": 3}}),
        ({"a": {"b": 1}}, {"a": [2]}, {"a": [2]}),
        ({}, {"a": 1}, {"a": 1}),
    ],
)
def test_mappings_are_merged_and_the_rest_is_replaced(below: Any, above: Any, merged: Any) -> None:
    assert overlay(below, above) == merged
