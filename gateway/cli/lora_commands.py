# ruff: noqa: PLC0415 - a command loads what it needs when it runs, so that short ones start fast
"""The commands `pacekeeper lora ...` with their options and their help.

Nothing is decided here; what they do is in :mod:`gateway.cli.lora`.
"""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.cli.asking import asks
from gateway.cli.target import Options

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The adapter, as pools[].lora names it; its path stands there, too.")
]
PoolOption = Annotated[
    str, typer.Option(metavar="NAME", help="Its pool; else the one that has an adapter of that name.")
]


@asks
def lora_list(options: Options, *, as_json: bool) -> None:
    """List every configured adapter: wanted or not, and where it is loaded."""
    from gateway.cli.lora import run_list

    run_list(options, as_json=as_json)


@asks
def lora_load(
    options: Options,
    *,
    as_json: bool,
    name: NameArgument,
    pool: PoolOption = "",
    reload: Annotated[
        bool, typer.Option("--reload", metavar="", help="Read its files anew where it is loaded already.")
    ] = False,
) -> None:
    """Have every backend of its pool load an adapter, now and whenever one lacks it.

    Ends with 1 when a backend did not; that one is asked again until it has, or until the adapter is unloaded.
    """
    from gateway.cli.lora import run_order

    run_order(options, name, pool=pool, load=True, reload=reload, as_json=as_json)


@asks
def lora_unload(options: Options, *, as_json: bool, name: NameArgument, pool: PoolOption = "") -> None:
    """Take an adapter from clients, then from every backend of its pool; open answers go on to their end."""
    from gateway.cli.lora import run_order

    run_order(options, name, pool=pool, load=False, reload=False, as_json=as_json)
