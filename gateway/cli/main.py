# ruff: noqa: PLC0415 - a command loads what it needs when it runs, so that short ones start fast
"""Every command with its options and its help; what it does is in the module of its name.

Nothing is decided here.  The options that say which gateway is meant can stand before or after the command.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.asking import ConfigOption, JsonOption, asks, options_of
from gateway.cli.demo import demo
from gateway.cli.entry import let_through
from gateway.cli.exits import MEANINGS, CommandFailed, Exit, failures
from gateway.cli.keys_commands import keys_create, keys_list, keys_revoke, keys_show
from gateway.cli.lora_commands import lora_list, lora_load, lora_unload
from gateway.cli.quarantine_commands import quarantine_list, quarantine_release
from gateway.cli.simulate import simulate_engine
from gateway.cli.target import CONFIG_PLACES, Options, config_file
from gateway.core.stream.summary import Outcome

_ABOUT = """Pacekeeper, a serving gateway for vLLM.

The commands ask a running gateway on its operators' address; serve, check, simulate-engine, demo and version need none."""

_EXITS = "Exit codes: " + ", ".join(f"{code.value} {meaning}" for code, meaning in MEANINGS) + "."

_FEW_EXITS = (
    "Exit codes: " + ", ".join(f"{code.value} {text}" for code, text in MEANINGS if code in {Exit.OK, Exit.USAGE}) + "."
)
"""Of commands that ask no gateway."""

_PLACES = ", then ".join(str(path) for path in CONFIG_PLACES)


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
    app.command("simulate-engine", epilog=_FEW_EXITS)(simulate_engine)
    app.command(epilog=_FEW_EXITS)(demo)
    backends = typer.Typer(help="The vLLM servers behind the gateway.", **shared)  # type: ignore[arg-type]
    backends.command("list", epilog=_EXITS)(backends_list)
    backends.command("show", epilog=_EXITS)(backends_show)
    app.add_typer(backends, name="backends")
    requests = typer.Typer(help="What was served: numbers, never text.", **shared)  # type: ignore[arg-type]
    requests.command("list", epilog=_EXITS)(requests_list)
    requests.command("show", epilog=_EXITS)(requests_show)
    app.add_typer(requests, name="requests")
    keys = typer.Typer(help="The keys of clients: who may send requests, and how many.", **shared)  # type: ignore[arg-type]
    keys.command("create", epilog=_EXITS)(keys_create)
    keys.command("list", epilog=_EXITS)(keys_list)
    keys.command("show", epilog=_EXITS)(keys_show)
    keys.command("revoke", epilog=_EXITS)(keys_revoke)
    app.add_typer(keys, name="keys")
    lora = typer.Typer(help="LoRA adapters: what is loaded where, and orders to every backend of a pool.", **shared)  # type: ignore[arg-type]
    lora.command("list", epilog=_EXITS)(lora_list)
    lora.command("load", epilog=_EXITS)(lora_load)
    lora.command("unload", epilog=_EXITS)(lora_unload)
    app.add_typer(lora, name="lora")
    quarantine = typer.Typer(help="Requests that are refused since backends died of them.", **shared)  # type: ignore[arg-type]
    quarantine.command("list", epilog=_EXITS)(quarantine_list)
    quarantine.command("release", epilog=_EXITS)(quarantine_release)
    app.add_typer(quarantine, name="quarantine")
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
    if context.invoked_subcommand != "demo":  # which lets them through when it can end well
        let_through()
    context.obj = Options(config=config, operators=operators, token_file=token_file)


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
        path = _file(options_of(context, config))
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
        path = file or _file(options_of(context, None))
        from gateway.cli.check import run

        run(path, as_json=json)


@asks
def status(options: Options, *, as_json: bool) -> None:
    """Show the whole gateway in one look."""
    from gateway.cli.status import run

    run(options, as_json=as_json)


@asks
def backends_list(options: Options, *, as_json: bool) -> None:
    """List every backend with its state, and why one is not serving."""
    from gateway.cli.backends import run_list

    run_list(options, as_json=as_json)


@asks
def backends_show(
    options: Options,
    *,
    as_json: bool,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name in the configuration.")],
) -> None:
    """Show everything that is known of one backend."""
    from gateway.cli.backends import run_show

    run_show(options, name, as_json=as_json)


@asks
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


@asks
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
