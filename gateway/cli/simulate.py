# ruff: noqa: PLC0415 - a command loads what it needs when it runs, so that short ones start fast
"""`pacekeeper simulate-engine`: one simulated vLLM engine in the foreground, with its options and its help.

Must stay apart from what the gateway runs: a simulation is started by this command and by nothing else.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from gateway.cli.exits import CommandFailed, Exit, failures
from gateway.cli.preset_names import preset_help

if TYPE_CHECKING:
    from gateway.simulator.launch import Launch

if TYPE_CHECKING:
    from gateway.simulator.launch import SigtermEnding
    from gateway.simulator.presets import Preset

_OWN_CARD: Final = "pacekeeper-simulated-card"
_CARD_HELP: Final = (
    f"GPU memory shared with other simulated engines; else $TMPDIR/{_OWN_CARD}-UID-PORT, removed at the end."
)


_Noise: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="Change a parameter of the preset's noise; again for more."),
]
_Arguments: TypeAlias = Annotated[
    list[str] | None, typer.Argument(metavar="[-- ARGUMENT...]", help="As for vllm serve.", show_default=False)
]


def _own_card(port: int, *, uds: str) -> Path:
    place = f"{zlib.crc32(uds.encode()):08x}" if uds else str(port)
    return Path(tempfile.gettempdir()) / f"{_OWN_CARD}-{os.getuid()}-{place}"


def simulate_engine(
    *,
    preset: Annotated[str, typer.Option(metavar="NAME|FILE", help=preset_help())],
    port: Annotated[int, typer.Option(min=1, max=65535, metavar="N", help="Where it listens.")] = 8000,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="On which address.")] = "127.0.0.1",
    control_port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, metavar="N", help="Port on 127.0.0.1 for readings and injected faults."),
    ] = None,
    speed: Annotated[
        float, typer.Option(min=0.001, max=1000, metavar="F", help="So many times faster than real.")
    ] = 1.0,
    load_speed: Annotated[
        float | None,
        typer.Option(min=0.001, max=1_000_000, metavar="F", help="The same for loading only; else as --speed."),
    ] = None,
    warm: Annotated[bool, typer.Option("--warm", metavar="", help="Without the slow minute after a start.")] = False,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", help="Fixes noise, ids and chances of each start by number; else drawn, and told."),
    ] = None,
    noise: _Noise = None,
    card: Annotated[Path | None, typer.Option(metavar="FOLDER", help=_CARD_HELP)] = None,
    sigterm: Annotated[
        str, typer.Option(metavar="ENDING", help="What SIGTERM does to open answers: abort, error, hang or race.")
    ] = "race",
    arguments: _Arguments = None,
) -> None:
    """Run one simulated vLLM engine in the foreground.

    There is no GPU and no model: the text is invented, the times are computed. A --host or --port among the arguments
    for vllm serve wins, so that a script that starts vLLM starts this as well.
    """
    from gateway.simulator.launch import Launch
    from gateway.simulator.nccl_conf import with_files

    with failures(as_json=False):
        simulated = _simulated(preset, noise or ())
        given = tuple(arguments or ())
        host, port, uds = _place(given, host=host, port=port, control_port=control_port)
        launch = Launch(
            preset=simulated,
            card=card or _own_card(port, uds=uds),
            keeps_card=card is not None,
            host=host,
            port=port,
            uds=uds,
            arguments=given,
            environment=with_files(os.environ, nccl_version=simulated.box.nccl_version, home=Path.home()),
            seed=secrets.randbits(32) if seed is None else seed,
            speed=speed,
            load_speed=speed if load_speed is None else load_speed,
            control_port=control_port,
            sigterm=_ending(sigterm),
            warm=warm,
        )
        raise typer.Exit(_run(launch))


def _place(given: tuple[str, ...], *, host: str, port: int, control_port: int | None) -> tuple[str, int, str]:
    """Return where to listen: host and port, and the socket in the file system that goes before them."""
    from gateway.simulator.spec import read_address, read_uds

    try:
        host, port = read_address(given, host=host, port=port)
    except ValueError as error:
        raise _wrong(str(error), "bad_argument") from error
    uds = read_uds(given)
    if control_port == port and not uds:
        raise _wrong(f"--control-port {port} is the engine's own port", "bad_argument")
    return host, port, uds


def _run(launch: Launch) -> int:
    from gateway.simulator import main
    from gateway.simulator.listening import CannotListen
    from gateway.simulator.spec import TooManyRanks

    try:
        return main.run(launch)
    except TooManyRanks as error:  # vLLM ends with code 1 as well
        raise CommandFailed(f"ValueError: {error}", exit_code=Exit.FAULT, code="too_many_ranks") from error
    except ValueError as error:
        raise _wrong(str(error), "bad_argument") from error
    except CannotListen as error:
        raise _wrong(str(error), "port_taken") from error


def _ending(name: str) -> SigtermEnding:
    from gateway.simulator.launch import SigtermEnding

    if name not in list(SigtermEnding):
        raise _wrong(f"no ending {name!r}", "unknown_ending", hint=f"one of {', '.join(SigtermEnding)}")
    return SigtermEnding(name)


def _simulated(name: str, noise: Sequence[str]) -> Preset:
    from gateway.simulator import library

    try:
        return library.with_noise(library.load(name), noise)
    except KeyError as error:
        hint = f"one of {', '.join(library.names())}, or a file FILE.yaml"
        raise _wrong(f"no preset {name!r}", "unknown_preset", hint=hint) from error
    except library.BadPreset as error:
        raise _wrong(str(error), "bad_preset") from error


def _wrong(message: str, code: str, *, hint: str = "") -> CommandFailed:
    return CommandFailed(message, exit_code=Exit.USAGE, code=code, hint=hint)
