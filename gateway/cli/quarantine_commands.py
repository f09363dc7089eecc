# ruff: noqa: PLC0415 - a command loads what it needs when it runs, so that short ones start fast
"""The commands `pacekeeper quarantine ...` with their options and their help.

Nothing is decided here; what they do is in :mod:`gateway.cli.quarantine`.
"""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.cli.asking import asks
from gateway.cli.target import Options


@asks
def quarantine_list(options: Options, *, as_json: bool) -> None:
    """List the requests that are refused, by the fingerprint of their body, and for how long."""
    from gateway.cli.quarantine import run_list

    run_list(options, as_json=as_json)


@asks
def quarantine_release(
    options: Options,
    *,
    as_json: bool,
    fingerprint: Annotated[str, typer.Argument(metavar="FINGERPRINT", help="As the list shows it.")],
) -> None:
    """Let requests with this fingerprint in again, before their time is over.

    Should backends die of them again, they are refused again.
    """
    from gateway.cli.quarantine import run_release

    run_release(options, fingerprint, as_json=as_json)
