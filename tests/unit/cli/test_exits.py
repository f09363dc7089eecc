"""Failures: words, hints, JSON, codes."""

from __future__ import annotations

import json

import pytest
import typer

from gateway.cli.exits import MEANINGS, CommandFailed, Exit, failures
from gateway.errors import ConfigError, GatewayError, GatewayFault, PortInUse


def said(error: Exception, capsys: pytest.CaptureFixture[str], *, as_json: bool = False) -> tuple[int, str]:
    with pytest.raises(typer.Exit) as caught, failures(as_json=as_json):
        raise error
    output = capsys.readouterr()
    assert output.out == ""
    return caught.value.exit_code, output.err


@pytest.mark.parametrize(
    "error, code, text",
    [
        (CommandFailed("no", exit_code=Exit.NOT_FOUND, code="x"), 5, "pacekeeper: no\n"),
        (CommandFailed("no", exit_code=Exit.USAGE, code="x", hint="try"), 2, "pacekeeper: no\n  try\n"),
        (PortInUse("127.0.0.1:1 is taken"), 2, "pacekeeper: 127.0.0.1:1 is taken\n"),
        (GatewayFault("ours"), 1, "pacekeeper: ours\n"),
        (ConfigError("f:1:1 a: bad"), 2, "f:1:1 a: bad\n"),
        (ConfigError("f:1:1 a: bad\nf:2:1 b: bad"), 2, "f:1:1 a: bad\nf:2:1 b: bad\n2 faults\n"),
    ],
)
def test_a_failure_has_its_words_and_its_code(
    error: Exception, code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(error, capsys) == (code, text)


@pytest.mark.parametrize("error", [CommandFailed("no", exit_code=Exit.FAULT, code="c", hint="try"), GatewayError("no")])
def test_a_failure_as_json_goes_to_standard_error(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = said(error, capsys, as_json=True)
    assert code == 1
    detail = json.loads(text)["error"]
    assert detail["message"] == "no"
    assert detail["code"] in {"c", "gateway_error"}
    assert detail["hint"] in {"try", None}


def test_what_is_no_failure_passes(capsys: pytest.CaptureFixture[str]) -> None:
    with failures(as_json=False):
        pass
    assert capsys.readouterr().err == ""


def test_every_code_has_a_meaning() -> None:
    assert [code for code, _ in MEANINGS] == list(Exit)
