# ruff: noqa: PLC0415 - a command loads what it needs when it runs, so that short ones start fast
"""Every command with its options and its help; what it does is in the module of its name.

Nothing is decided here.  The options that say which gateway is meant can stand before or after the command.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.cli.demo import demo
from gateway.cli.exits import MEANINGS, CommandFailed, Exit, failures
from gateway.cli.simulate import simulate_engine
from gateway.cli.target import CONFIG_PLACES, Options, config_file
from gateway.core.stream.summary import Outcome

_ABOUT = """Pacekeeper, a serving gateway for vLLM.

The commands ask a running gateway on its operators' address; serve, check, simulate-engine, demo and version need none."""

_EXITS = "Exit codes: " + ", ".join(f"{code.value} {meaning}" for code, meaning in MEANINGS) + "."

_PLACES = ", then ".join(str(path) for path in CONFIG_PLACES)


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


def main() -> None:
    """Entry point of the command `pacekeeper`."""
    build_app()()


def build_app() -> typer.Typer:
    """The command line, with frames and colours in its help only where a person looks at it."""
    at_terminal = sys.stdout.isatty() and sys.stderr.isatty()
    shared = {
        "add_completion": False,
        "no_args_is_help": True,
        "pretty_exceptions_enable": False,
        "rich_markup_mode": "rich" if at_terminal else None,
        "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 100},
    }
    app = typer.Typer(name="pacekeeper", help=_ABOUT, epilog=_EXITS, **shared)  # type: ignore[arg-type]  # mixed values
    app.callback()(_before)
    for command in (serve, check, status, version):
        app.command(epilog=_EXITS)(command)
    app.command("simulate-engine", epilog=_EXITS)(simulate_engine)
    app.command(epilog=_EXITS)(demo)
    backends = typer.Typer(help="The vLLM servers behind the gateway.", **shared)  # type: ignore[arg-type]
    backends.command("list", epilog=_EXITS)(backends_list)
    backends.command("show", epilog=_EXITS)(backends_show)
    app.add_typer(backends, name="backends")
    requests = typer.Typer(help="What was served: numbers, never text.", **shared)  # type: ignore[arg-type]
    requests.command("list", epilog=_EXITS)(requests_list)
    requests.command("show", epilog=_EXITS)(requests_show)
    app.add_typer(requests, name="requests")
    return app


def _before(
    context: typer.Context,
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            envvar="PACEKEEPER_CONFIG",
            help=f"Configuration file; else {_PLACES}.",
        ),
    ] = None,
    operators: Annotated[
        str | None,
        typer.Option(
            "--operators",
            metavar="URL",
            envvar="PACEKEEPER_OPERATORS_URL",
            help="Operators' address (http://host:port or unix:/path); else that in the configuration.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="File with the token; else PACEKEEPER_TOKEN (the token), else PACEKEEPER_TOKEN_FILE, else admin.token in "
            "the configured runtime_dir.",
        ),
    ] = None,
) -> None:
    context.obj = Options(config=config, operators=operators, token_file=token_file)


def _options(
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


def _file(options: Options) -> Path:
    path = config_file(options)
    if path is None:
        raise CommandFailed(
            f"no configuration file given, and none at {' or '.join(str(place) for place in CONFIG_PLACES)}",
            exit_code=Exit.USAGE,
            code="no_config",
            hint="pacekeeper serve --config FILE",
        )
    return path


def serve(context: typer.Context, *, config: ConfigOption = None) -> None:
    """Run the gateway in the foreground until it is stopped.

    SIGTERM lets open answers end (clients.drain_s), a second one ends at once. SIGHUP reads the configuration again.
    """
    with failures(as_json=False):
        path = _file(_options(context, config))
        from gateway.cli.serve import run

        raise typer.Exit(run(path))


def check(
    context: typer.Context,
    *,
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="The file; else as --config.")] = None,
    json: JsonOption = False,
) -> None:
    """Say what a configuration means, or what is wrong with it.

    Starts nothing and asks no backend. The environment counts as it would for serve.
    """
    with failures(as_json=json):
        path = file or _file(_options(context, None))
        from gateway.cli.check import run

        run(path, as_json=json)


def _asks(command: Callable[..., None]) -> Callable[..., None]:
    """Give ``command(options, *, as_json, ...)`` the options of every command that asks a running gateway.

    The command line is made from the signature, in which the command's own parameters come first.
    """

    @functools.wraps(command, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
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
            command(_options(context, config, operators, token_file=token_file), as_json=json, **own)

    _, _, *own = inspect.signature(command, eval_str=True).parameters.values()
    context, *shared, _ = inspect.signature(asking, eval_str=True, follow_wrapped=False).parameters.values()
    parameters = [context, *own, *shared]
    asking.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    asking.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # the language's own hook
    return asking


@_asks
def status(options: Options, *, as_json: bool) -> None:
    """Show the whole gateway in one look."""
    from gateway.cli.status import run

    run(options, as_json=as_json)


@_asks
def backends_list(options: Options, *, as_json: bool) -> None:
    """List every backend with its state, and why one is not serving."""
    from gateway.cli.backends import run_list

    run_list(options, as_json=as_json)


@_asks
def backends_show(
    options: Options,
    *,
    as_json: bool,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name in the configuration.")],
) -> None:
    """Show everything that is known of one backend."""
    from gateway.cli.backends import run_show

    run_show(options, name, as_json=as_json)


@_asks
def requests_list(
    options: Options,
    *,
    as_json: bool,
    model: Annotated[str, typer.Option(metavar="NAME", help="Only this model.")] = "",
    backend: Annotated[str, typer.Option(metavar="NAME", help="Only this backend.")] = "",
    outcome: Annotated[
        Outcome | None, typer.Option(metavar="NAME", help=f"Only requests that ended so: {', '.join(Outcome)}.")
    ] = None,
    slowest: Annotated[
        bool, typer.Option("--slowest", metavar="", help="Longest first, instead of newest first.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=500, metavar="N", help="How many at most.")] = 20,
    before: Annotated[int, typer.Option(min=0, metavar="ROW", help="Continue an earlier list here.")] = 0,
) -> None:
    """List settled requests with their pace, newest first.

    DECODE is the pace of all tokens; EFFECTIVE counts content tokens only, over the same time: what a reader feels.
    """
    from gateway.cli.requests import run_list
    from gateway.ports import RequestFilter

    wanted = RequestFilter(
        limit=limit, before=before, model=model, backend=backend, outcome=outcome or "", slowest=slowest
    )
    run_list(options, wanted, as_json=as_json)


@_asks
def requests_show(
    options: Options,
    *,
    as_json: bool,
    request_id: Annotated[str, typer.Argument(metavar="ID", help="X-Request-Id of the answer, or its beginning.")],
) -> None:
    """Show one request: its instants as a bar, its counts and rates."""
    from gateway.cli.requests import run_show

    run_show(options, request_id, as_json=as_json)


def version(*, json: JsonOption = False) -> None:
    """Print the release."""
    from gateway.cli.version import run

    run(as_json=json)
