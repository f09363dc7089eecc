"""The command line in this process, against a fake gateway."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli.main import build_app
from tests.fakes.admin_server import TOKEN, FakeGateway, serving

NOW = 1_700_000_000.0


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway(NOW)


@pytest.fixture
def pacekeeper(gateway: FakeGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Runs a command, checks its exit code, and gives what it wrote (standard error after standard output)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "time", lambda: NOW)

    def run(*arguments: str, exits: int = 0) -> str:
        done = CliRunner().invoke(build_app(), list(arguments), catch_exceptions=False)
        assert done.exit_code == exits, done.output
        return done.stdout + done.stderr

    with serving(gateway, socket_path=tmp_path / "ops.sock") as url:
        monkeypatch.setenv("PACEKEEPER_OPERATORS_URL", url)
        monkeypatch.setenv("PACEKEEPER_TOKEN", TOKEN)
        yield run
