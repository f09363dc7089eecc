"""Exit codes, and the one way in which a command fails.

The numbers are a contract with scripts: they stand in every help page and in docs/commands.md.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import typer

from gateway.errors import ConfigError, GatewayError, OperatorError


class Exit(IntEnum):
    """What the shell is told."""

    OK = 0
    FAULT = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_AUTHORISED = 4
    NOT_FOUND = 5


MEANINGS = (
    (Exit.OK, "done"),
    (Exit.FAULT, "the gateway said no, or failed"),
    (Exit.USAGE, "wrong usage, configuration, file or port"),
    (Exit.UNREACHABLE, "no gateway answers"),
    (Exit.NOT_AUTHORISED, "the token is missing, wrong or not enough"),
    (Exit.NOT_FOUND, "no such backend, request, key or adapter"),
)
"""Each code and its meaning, for help and documentation."""


class CommandFailed(Exception):
    """A command cannot do what was asked.  ``hint`` says what to try; ``code`` is stable, for ``--json``."""

    def __init__(self, message: str, *, exit_code: Exit, code: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.code = code
        self.hint = hint


@contextmanager
def failures(*, as_json: bool) -> Iterator[None]:
    """Turn a failure inside into words on standard error (an object with ``as_json``) and the right exit code."""
    try:
        yield
    except CommandFailed as error:
        _say(error, as_json=as_json)
        raise typer.Exit(error.exit_code) from error
    except GatewayError as error:
        code = Exit.USAGE if isinstance(error, OperatorError) else Exit.FAULT
        _say(CommandFailed(error.message, exit_code=code, code=error.code), as_json=as_json)
        raise typer.Exit(code) from error


def _say(error: CommandFailed, *, as_json: bool) -> None:
    if as_json:
        import json  # noqa: PLC0415 - rarely needed

        detail = {"message": error.message, "code": error.code, "hint": error.hint or None}
        typer.echo(json.dumps({"error": detail}), err=True)
        return
    lines = error.message.splitlines()
    if error.code == ConfigError.code:  # each line has its place already
        typer.echo("\n".join(lines), err=True)
        if len(lines) > 1:
            typer.echo(f"{len(lines)} faults", err=True)
    else:
        typer.echo(f"pacekeeper: {error.message}", err=True)
    if error.hint:
        typer.echo(_indented(error.hint), err=True)


def _indented(hint: str) -> str:
    """``hint`` below the message; broken between words on a terminal, whole in a log."""
    width = shutil.get_terminal_size((100, 24)).columns if sys.stderr.isatty() else 10_000
    return textwrap.fill(hint, width, initial_indent="  ", subsequent_indent="  ", break_long_words=False)
