"""load and parse: the file, the environment over it, and every fault in one go."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from gateway.errors import ConfigError
from gateway.settings import Settings, load, parse

GOOD = """\
pools:
  - name: main
    backends:
      - {name: a, url: "http://127.0.0.1:8001"}
"""

EXPOSED = (
    "can be reached from other machines while auth.clients is none; listen on 127.0.0.1, [::1] or unix:/path, or ask "
    "for keys (auth.clients: keys)"
)


def settings(text: str, **environ: str) -> Settings:
    return parse(dedent(text), "f.yaml", environ=environ)


def faults(text: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        settings(text, **environ)
    return caught.value.message.splitlines()


def test_the_smallest_file_is_good_and_the_rest_has_defaults() -> None:
    found = settings(GOOD)
    assert found.install.clients.listen == ("127.0.0.1:8080",)
    assert found.install.operators.listen == ("127.0.0.1:8081",)
    assert found.install.workers == 1
    assert found.install.store.path == Path.cwd() / "var/pacekeeper.db"
    assert found.runtime.pools[0].backends[0].url == "http://127.0.0.1:8001"
    assert found.path == Path.cwd() / "f.yaml"


def test_a_section_without_content_means_its_defaults() -> None:
    assert settings(GOOD + "timers:\nlog:\n") == settings(GOOD)


def test_with_keys_clients_may_come_from_other_machines() -> None:
    exposed = GOOD + 'clients: {listen: ["0.0.0.0:8080"]}\n'
    assert any(EXPOSED in line for line in faults(exposed))
    found = settings(exposed + "auth: {clients: keys, keys_file: nowhere/keys.json}\n")
    assert found.install.auth.keys_file == Path.cwd() / "nowhere/keys.json"


def test_a_damaged_file_of_keys_is_a_fault_of_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text("keys:\n  - {id: a}\n")
    path.chmod(0o600)
    text = GOOD + f"auth: {{clients: keys, keys_file: {path}}}\n"
    assert faults(text) == [
        f"f.yaml:5:34 auth.keys_file: {path}:2:5 keys[0].digest: required, but not there",
    ]
    path.chmod(0o640)
    assert "chmod 0600" in faults(text)[0]


def test_settings_cannot_be_changed() -> None:
    found = settings(GOOD)
    with pytest.raises(ValueError, match="frozen"):
        found.runtime.timers.stall_s = 1.0  # type: ignore[misc]


def test_every_fault_comes_in_one_go_in_the_order_of_the_file() -> None:
    text = """\
    clients: {listen: ["0.0.0.0:8080"]}
    operators: {listen: ["127.0.0.1:8080"]}
    workers: two
    pools:
      - name: main
        tuner: {mode: observe}
        backends:
          - {name: a, urll: "http://127.0.0.1:8001"}
          - {name: a, url: "http://127.0.0.1:8001/v1", driver: local}
    timers: {stall_s: 700, connect_s: -1}
    limits: {body_bytes: 64 MB}
    """
    assert faults(text) == [
        f"f.yaml:1:20 clients.listen[0]: 0.0.0.0:8080 {EXPOSED}",
        "f.yaml:2:22 operators.listen[0]: port 8080 is a port of the clients; operators need one of their own",
        'f.yaml:3:10 workers: must be a whole number or "auto"',
        (
            "f.yaml:6:5 pools[0].tuner: unknown key; known here: name, models, aliases, lora, min_available, "
            "routing, concurrency, queue, queue_s, deadline_s, hold_s, reasoning, backends"
        ),
        "f.yaml:8:9 pools[0].backends[0].url: required, but not there",
        'f.yaml:8:19 pools[0].backends[0].urll: unknown key; did you mean "url"?',
        "f.yaml:9:16 pools[0].backends[1].name: the same backend as pools[0].backends[0].name",
        "f.yaml:9:24 pools[0].backends[1].url: only scheme, host and port; the gateway adds the path (/v1/...) itself",
        'f.yaml:9:60 pools[0].backends[1].driver: must be "static"',
        "f.yaml:10:35 timers.connect_s: must be more than 0",
        'f.yaml:11:22 limits.body_bytes: must be a size: a number of bytes, or "64 MiB" (KiB, MiB, GiB, TiB)',
    ]


@pytest.mark.parametrize(
    "line, expected",
    [
        ("workers: true", 'f.yaml:5:10 workers: must be a whole number or "auto"'),
        ("workers: 0", 'f.yaml:5:10 workers: must be 1 to 256, or "auto"'),
        ("workers:", 'f.yaml:5:9 workers: must be a whole number or "auto"'),
        ("probes: {fall: 1.5}", "f.yaml:5:16 probes.fall: must be a whole number"),
        ("probes: {fall: true}", "f.yaml:5:16 probes.fall: must be a number, not true or false"),
        ("probes: {health_s: .nan}", "f.yaml:5:20 probes.health_s: must be more than 0"),
        ("probes: {health_s: 1e9}", "f.yaml:5:20 probes.health_s: must be at most 604800"),
        ("timers: {total_s: -1}", "f.yaml:5:19 timers.total_s: must be at least 0"),
        ("timers: [1]", "f.yaml:5:9 timers: must be a mapping of keys and values"),
        ("headers: {profile_name: true}", "f.yaml:5:11 headers.profile_name: unknown key; known here: backend_name"),
        ("headers: {backend_name: perhaps}", "f.yaml:5:25 headers.backend_name: must be true or false"),
        ("limits: {body_bytes: 3}", "f.yaml:5:22 limits.body_bytes: must be at least 1024"),
        ("limits: {body_bytes: true}", "f.yaml:5:22 limits.body_bytes: must be a size in bytes, not true or false"),
        ("limits: {body_bytes: 1.5}", "f.yaml:5:22 limits.body_bytes: must be a whole number"),
        ("clients: {listen: []}", "f.yaml:5:19 clients.listen: needs at least one entry"),
        ("clients: {listen: text}", "f.yaml:5:19 clients.listen: must be a list"),
        ("clients: {listen: [8080]}", "f.yaml:5:20 clients.listen[0]: must be text; put it in quotes"),
        ("store: {path: ~/x}", 'f.yaml:5:15 store.path: "~" is not expanded here; write the path in full'),
        ("store: {path: ''}", "f.yaml:5:15 store.path: must be a path"),
        ("store: {path: 3}", "f.yaml:5:15 store.path: must be a path"),
        ("auth: {clients: token}", 'f.yaml:5:17 auth.clients: must be "none" or "keys"'),
        ("log: {level: loud}", 'f.yaml:5:14 log.level: must be "debug", "info", "warning" or "error"'),
        ("stall_s: 3", "f.yaml:5:1 stall_s: unknown key here; did you mean timers.stall_s?"),
        ("profiles: []", 'f.yaml:5:1 profiles: unknown key; did you mean "probes"?'),
        ("client: {}", 'f.yaml:5:1 client: unknown key; did you mean "clients"?'),
    ],
)
def test_a_bad_value_is_refused_with_its_place(line: str, expected: str) -> None:
    assert faults(GOOD + line) == [expected]


def test_without_pools_there_is_nothing_to_serve() -> None:
    assert faults("workers: 1\n") == ["f.yaml:1:1 pools: required, but not there"]
    assert faults("") == ["f.yaml:1:1 pools: required, but not there"]
    assert faults("pools: []\n") == ["f.yaml:1:8 pools: needs at least one entry"]


def test_yaml_faults_and_bad_values_come_together() -> None:
    assert faults(GOOD + "workers: two\nworkers: 3\n") == [
        'f.yaml:5:10 workers: must be a whole number or "auto"',
        "f.yaml:6:1 workers: stands twice; first on line 5",
    ]


def test_a_secret_in_the_wrong_place_is_not_repeated() -> None:
    secret = "sk-Zq9-4711"
    text = f"""\
    pools:
      - name: main
        backends:
          - {{name: a, url: "http://u:{secret}@host", api_key_env: "{secret}", api_key: "{secret}", driver: "{secret}"}}
    workers: "{secret}"
    log: {{level: "{secret}"}}
    limits: {{body_bytes: "{secret}", in_flight: "{secret}"}}
    timers: "{secret}"
    """
    found = faults(text)
    assert len(found) == 9
    assert not any(secret in fault for fault in found)


def test_a_missing_file_is_one_clear_line(tmp_path: Path) -> None:
    for path, says in [(tmp_path / "gone.yaml", "no such file or directory"), (tmp_path, "is a directory")]:
        with pytest.raises(ConfigError) as caught:
            load(path, environ={})
        assert caught.value.message == f"{path}: {says}"


def test_a_file_that_is_not_utf8_names_the_place(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(b"pools:\n  - name: \xff\n")
    with pytest.raises(ConfigError) as caught:
        load(path, environ={})
    assert caught.value.message == f"{path}:2:11: not UTF-8"


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert load(path, environ={}).runtime.pools[0].name == "main"


def test_without_an_environment_given_this_process_has_its_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACEKEEPER_WORKERS", "3")
    assert parse(GOOD, "f.yaml").install.workers == 3
