"""`pacekeeper serve`: the plan for the supervisor, and that two gateways do not share a runtime directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.app.spec import install_spec
from gateway.cli.serve import LOCK_NAME, alone_in, plan
from gateway.errors import RuntimeDirUnusable
from gateway.settings import parse

POOLS = 'pools: [{name: p, backends: [{name: a, url: "http://127.0.0.1:9"}]}]\n'


def test_the_plan_is_what_was_configured() -> None:
    text = (
        POOLS
        + 'workers: 3\nclients: {listen: ["127.0.0.1:1", "unix:/x"], drain_s: 7}\nlog: {level: debug, format: console}\n'
    )
    found = plan(install_spec(parse(text, "f.yaml", environ={})), Path("/run/spec.json"))
    assert (found.workers, found.clients, found.operators) == (3, ("127.0.0.1:1", "unix:/x"), ("127.0.0.1:8081",))
    assert found.worker == (sys.executable, "-P", "-m", "gateway.app.worker_main", "--spec", "/run/spec.json")
    assert found.control == (sys.executable, "-P", "-m", "gateway.app.control_main", "--spec", "/run/spec.json")
    assert found.policy.drain_s == 7
    assert (found.log_level, found.log_format) == ("debug", "console")


def test_a_runtime_directory_belongs_to_one_gateway_at_a_time(tmp_path: Path) -> None:
    another = pytest.raises(RuntimeDirUnusable, match=rf"another gateway runs .* \(pid {os.getpid()}\)")
    with alone_in(tmp_path), another, alone_in(tmp_path):
        pass
    with alone_in(tmp_path):
        assert (tmp_path / LOCK_NAME).read_text() == f"{os.getpid()}\n"


def test_a_lock_that_cannot_be_opened_is_said_so(tmp_path: Path) -> None:
    (tmp_path / LOCK_NAME).mkdir()
    with pytest.raises(RuntimeDirUnusable, match="cannot be opened"), alone_in(tmp_path):
        pass


@pytest.mark.parametrize(
    "text, says",
    [
        ("workers: 1\n", "g.yaml:1:1 pools: required, but not there"),
        (POOLS + "runtime_dir: g.yaml\n", "pacekeeper: "),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(text: str, says: str, pacekeeper: Callable[..., str]) -> None:
    Path("g.yaml").write_text(text)
    said = pacekeeper("serve", "--config", "g.yaml", exits=2)
    assert said.startswith(says)
    assert len(said.splitlines()) == 1


def test_without_a_configuration_it_says_how(pacekeeper: Callable[..., str]) -> None:
    said = pacekeeper("serve", exits=2)
    assert said == (
        "pacekeeper: no configuration file given, and none at config/gateway.yaml or /etc/pacekeeper/gateway.yaml\n"
        "  pacekeeper serve --config FILE\n"
    )
