"""The command line as a whole: help, options before and after a command, wrong usage."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.cli.exits import MEANINGS
from tests.fakes.admin_server import TOKEN, FakeGateway

COMMANDS = ["serve", "check", "status", "version", "backends list", "backends show", "requests list", "requests show"]


def test_the_help_names_every_command_and_exit_code(pacekeeper: Callable[..., str]) -> None:
    said = " ".join(pacekeeper("--help").split())
    assert all(command.split()[0] in said for command in COMMANDS)
    assert all(f"{code.value} {meaning}" in said for code, meaning in MEANINGS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_exit_codes_and_no_frames_in_a_pipe(
    command: str, pacekeeper: Callable[..., str]
) -> None:
    said = pacekeeper(*command.split(), "-h")
    assert "Exit codes: 0 done" in said
    assert not set(said) & set("╭│╰\x1b")


def test_without_a_command_the_help_is_shown(pacekeeper: Callable[..., str]) -> None:
    assert "Usage: " in pacekeeper(exits=2)


@pytest.mark.parametrize(
    "arguments", [("nonsense",), ("status", "--nonsense"), ("backends", "show"), ("check", "a", "b")]
)
def test_wrong_usage_ends_with_2(arguments: tuple[str, ...], pacekeeper: Callable[..., str]) -> None:
    assert "Usage: " in pacekeeper(*arguments, exits=2)


def test_options_before_and_after_the_command_mean_the_same(
    pacekeeper: Callable[..., str], gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"unix:{Path.cwd()}/ops.sock"
    monkeypatch.delenv("PACEKEEPER_OPERATORS_URL")
    monkeypatch.delenv("PACEKEEPER_TOKEN")
    Path("t").write_text(TOKEN)
    for arguments in (
        ("--operators", url, "--token-file", "t", "backends", "show", "a", "--json"),
        ("backends", "show", "--operators", url, "--token-file", "t", "a", "--json"),
        (
            "--operators",
            "http://127.0.0.1:1",
            "backends",
            "show",
            "a",
            "--operators",
            url,
            "--token-file",
            "t",
            "--json",
        ),
    ):
        assert json.loads(pacekeeper(*arguments))["name"] == "a"
    assert len(gateway.seen) == 3


def test_failures_are_words_or_json(pacekeeper: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACEKEEPER_OPERATORS_URL", "unix:gone.sock")
    assert pacekeeper("status", exits=3).startswith("pacekeeper: no gateway answers at unix:")
    assert json.loads(pacekeeper("status", "--json", exits=3))["error"]["code"] == "unreachable"
    monkeypatch.setenv("PACEKEEPER_OPERATORS_URL", "gone.sock")
    assert "--operators: must be" in pacekeeper("status", exits=2)


def test_a_wrong_token_ends_with_4(pacekeeper: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACEKEEPER_TOKEN", "wrong")
    assert pacekeeper("requests", "list", exits=4).startswith("pacekeeper: this takes a token\n")


def test_a_short_command_loads_nothing_heavy() -> None:
    heavy = "{'pydantic', 'rich', 'yaml', 'aiohttp', 'http.client', 'ssl', 'asyncio', 'uvloop', 'sqlite3'}"
    code = f"import sys; from gateway.cli.main import build_app; build_app(); print(sorted({heavy} & set(sys.modules)))"
    unmeasured = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    done = subprocess.run([sys.executable, "-c", code], env=unmeasured, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
