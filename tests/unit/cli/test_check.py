"""`pacekeeper check`: what a configuration means, or what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.certificates import make_certificate

GOOD = """\
clients: {listen: ["127.0.0.1:8080", "unix:c.sock"]}
workers: auto
store: {path: /var/lib/p.db, keep_days: 1}
pools:
  - name: main
    models: [kimi-k2.5]
    backends:
      - {name: a, url: "https://h:8443", api_key_env: VLLM_KEY}
      - {name: b, url: "unix:/run/e.sock"}
"""

MEANS = """\
g.yaml is good: 2 backends in 1 pool.

  clients     http://127.0.0.1:8080, unix:{here}/c.sock  no keys
  operators   http://127.0.0.1:8081
  workers     one per processor
  runtime     {here}/var/run
  history     /var/lib/p.db  1 day, at most 1.0 GiB
  log         debug and above, as json
  overridden  by PACEKEEPER_LOG__LEVEL

POOL  BACKEND  URL               KEY FROM  VERIFIED BY  MODELS
main  a        https://h:8443    VLLM_KEY  the system   kimi-k2.5
main  b        unix:/run/e.sock  –         –            kimi-k2.5
"""


@pytest.fixture
def here(pacekeeper: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> Path:
    Path("g.yaml").write_text(GOOD)
    monkeypatch.setenv("VLLM_KEY", "sk-secret")
    monkeypatch.setenv("PACEKEEPER_LOG__LEVEL", "debug")
    return Path.cwd()


def test_a_good_file_is_told_in_full(pacekeeper: Callable[..., str], here: Path) -> None:
    assert pacekeeper("check", "g.yaml") == MEANS.format(here=here)


def test_json_has_every_setting_and_no_secret(pacekeeper: Callable[..., str], here: Path) -> None:
    said = pacekeeper("check", "g.yaml", "--json")
    found = json.loads(said)
    assert found["good"] is True
    assert found["overrides"] == ["PACEKEEPER_LOG__LEVEL"]
    assert found["runtime"]["timers"]["stall_s"] == 120
    assert found["install"]["store"]["path"] == "/var/lib/p.db"
    assert "sk-secret" not in said


def test_faults_have_their_places_and_their_number(pacekeeper: Callable[..., str], here: Path) -> None:
    Path("g.yaml").write_text(GOOD.replace("workers", "worker").replace("kimi-k2.5", "a|b"))
    assert pacekeeper("check", "g.yaml", exits=2).splitlines() == [
        'g.yaml:2:1 worker: unknown key; did you mean "workers"?',
        'g.yaml:6:14 pools[0].models[0]: must be 1 to 256 printable characters without "|" and outer blanks',
        "2 faults",
    ]


def test_one_fault_needs_no_number(pacekeeper: Callable[..., str], here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_KEY")
    said = pacekeeper("check", "g.yaml", exits=2)
    assert said == "g.yaml:8:55 pools[0].backends[0].api_key_env: the environment variable VLLM_KEY is not set\n"


def test_faults_as_json(pacekeeper: Callable[..., str], here: Path) -> None:
    Path("g.yaml").write_text("pools: []\n")
    found = json.loads(pacekeeper("check", "g.yaml", "--json", exits=2))
    assert found == {"good": False, "path": "g.yaml", "faults": ["g.yaml:1:8 pools: needs at least one entry"]}


def test_without_a_file_the_usual_one_is_meant(pacekeeper: Callable[..., str], here: Path) -> None:
    assert "no configuration file given" in pacekeeper("check", exits=2)
    assert pacekeeper("--config", "g.yaml", "check").startswith("g.yaml is good")


def test_a_file_that_is_not_there_is_said_so(pacekeeper: Callable[..., str]) -> None:
    assert pacekeeper("check", "gone.yaml", exits=2) == "gone.yaml: no such file or directory\n"


def test_a_private_authority_is_named(pacekeeper: Callable[..., str], here: Path) -> None:
    Path("g.yaml").write_text(GOOD.replace("VLLM_KEY}", "VLLM_KEY, tls_ca: gone.pem}"))
    assert f"cannot read {here}/gone.pem: no such file or directory" in pacekeeper("check", "g.yaml", exits=2)


def test_keys_tls_and_other_names_are_told(pacekeeper: Callable[..., str], here: Path) -> None:
    key, certificate = make_certificate(here)
    Path("g.yaml").write_text(
        GOOD.replace('"unix:c.sock"]}', f'"unix:c.sock"], tls: {{certificate: {certificate}, key: {key}}}}}')
        .replace("    backends:\n", "    aliases: [{name: gpt-4o, model: kimi-k2.5}]\n    backends:\n")
        .replace(
            "    backends:\n", "    lora: [{name: poet, path: /p}, {name: law, path: /l, load: true}]\n    backends:\n"
        )
        + "auth: {clients: keys, keys_file: k.json}\n"
    )
    said = pacekeeper("check", "g.yaml").splitlines()
    assert said[2] == f"  clients     https://127.0.0.1:8080, unix:{here}/c.sock  keys in {here}/k.json"
    assert said[3] == "  operators   http://127.0.0.1:8081"
    assert said[9:11] == ["  aliases     gpt-4o for kimi-k2.5", "  adapters    poet (on order), law"]
