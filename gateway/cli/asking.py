"""The options of commands that ask a running gateway, and the decorator that gives them.

Nothing is decided here.  The options that say which gateway is meant can stand before or after the command.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.cli.exits import failures
from gateway.cli.target import Options

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="Configuration file; else the first that is there."),
]
OperatorsOption = Annotated[
    str | None,
    typer.Option("--operators", metavar="URL", help="Operators' address; else that in the configuration."),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file", metavar="FILE", help="File with the token; else admin.token in the configured runtime_dir."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON, errors too.")]


def options_of(
    context: typer.Context,
    config: Path | None,
    operators: str | None = None,
    *,
    token_file: Path | None = None,
) -> Options:
    """The options after the command, and where they say nothing those before it."""
    return Options(config=config, operators=operators, token_file=token_file).over(
        context.find_object(Options) or Options()
    )


def asks(command: Callable[..., None]) -> Callable[..., None]:
    """Give ``command(options, *, as_json, ...)`` the options of every command that asks a running gateway.

    The command line is made from the signature, in which the command's own parameters come first.
    """

    def asking(
        context: typer.Context,
        *,
        config: ConfigOption = None,
        operators: OperatorsOption = None,
        token_file: TokenFileOption = None,
        json: JsonOption = False,
        **own: Any,
    ) -> None:
        with failures(as_json=json):
            command(options_of(context, config, operators, token_file=token_file), as_json=json, **own)

    _, _, *own = inspect.signature(command, eval_str=True).parameters.values()
    context, *shared, _ = inspect.signature(asking, eval_str=True).parameters.values()
    functools.update_wrapper(asking, command, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
    parameters = [context, *own, *shared]
    asking.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    asking.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # the language's own hook
    return asking
