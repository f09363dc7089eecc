"""Settings that only a restart applies are named, with both values."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gateway.app.restart import SETTING_OF, restart_needed
from gateway.app.spec import InstallSpec, install_spec
from gateway.settings import Settings, parse

TEXT = 'pools:\n  - {name: p, backends: [{name: a, url: "http://127.0.0.1:8001"}]}\n'


def read(more: str = "") -> Settings:
    return parse(TEXT + more, "gateway.yaml", environ={})


RUNNING = install_spec(read())


def test_the_installation_that_runs_needs_no_restart() -> None:
    assert restart_needed(RUNNING, read("timers: {stall_s: 7}\n")) == ()


@pytest.mark.parametrize(
    "more,sentence",
    [
        ("workers: 3\n", "workers: 1 → 3"),
        (
            'clients: {listen: ["127.0.0.1:1", "127.0.0.1:2"]}\n',
            "clients.listen: 127.0.0.1:8080 → 127.0.0.1:1, 127.0.0.1:2",
        ),
        ("operators: {names: [gw.example, gw]}\n", "operators.names: none → gw.example, gw"),
        ("auth: {clients: keys, keys_file: /k.json}\n", "auth.clients: none → keys"),
        ("clients: {drain_s: 7.5}\n", "clients.drain_s: 30 → 7.5"),
        ("log: {level: debug}\n", "log.level: info → debug"),
        ("store: {keep_bytes: 1 MiB}\n", "store.keep_bytes: 1073741824 → 1048576"),
        ("store: {keep_days: 2}\n", "store.keep_days: 30 → 2"),
    ],
)
def test_a_changed_setting_is_named(more: str, sentence: str) -> None:
    assert restart_needed(RUNNING, read(more)) == (sentence,)


def test_what_was_empty_is_called_none() -> None:
    without = msgspec.structs.replace(RUNNING, tls_certificate="/c.pem", tls_key="/k.pem")
    assert restart_needed(without, read()) == (
        "clients.tls.certificate: /c.pem → none",
        "clients.tls.key: /k.pem → none",
    )


def test_that_keys_are_asked_for_no_more_is_named_by_what_says_so() -> None:
    with_keys = msgspec.structs.replace(RUNNING, keys_path="/k.json")
    assert restart_needed(with_keys, read()) == ("auth.clients: keys → none",)
    (sentence,) = restart_needed(with_keys, read("auth: {clients: keys, keys_file: /l.json}\n"))
    assert sentence == "auth.keys_file: /k.json → /l.json"


def test_paths_are_compared_as_they_are_used() -> None:
    (sentence,) = restart_needed(msgspec.structs.replace(RUNNING, store_path="/elsewhere.db"), read())
    assert sentence == f"store.path: /elsewhere.db → {Path('var/pacekeeper.db').absolute()}"


def test_every_field_of_the_installation_is_compared() -> None:
    assert set(SETTING_OF) == set(InstallSpec.__struct_fields__) - {"version", "config_path"}
