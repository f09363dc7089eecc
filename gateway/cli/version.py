"""`pacekeeper version`: which release this is.

Must stay light: scripts call it to see whether the command is there at all.
"""

from __future__ import annotations

import json
import platform

import typer

import gateway


def run(*, as_json: bool) -> None:
    """Print the release, with ``as_json`` also what it runs on."""
    if as_json:
        system = {"python": platform.python_version(), "platform": platform.platform(terse=True)}
        typer.echo(json.dumps({"version": gateway.__version__, **system}))
    else:
        typer.echo(f"pacekeeper {gateway.__version__}")
