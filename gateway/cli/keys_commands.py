# ruff: noqa: PLC0415 - a command loads what it needs when it runs, so that short ones start fast
"""The commands `pacekeeper keys ...` with their options and their help.

Nothing is decided here; what they do is in :mod:`gateway.cli.keys`.
"""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.cli.asking import asks
from gateway.cli.target import Options
from gateway.core.admission.keys import KeyScope

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the key.")]


@asks
def keys_create(
    options: Options,
    *,
    as_json: bool,
    name: Annotated[str, typer.Argument(metavar="NAME", help="For people: whose key it is.")],
    id: Annotated[str, typer.Option(metavar="ID", help="Its id in logs, records and metrics; else one is made.")] = "",
    scope: Annotated[
        list[KeyScope] | None, typer.Option(metavar="SCOPE", help=f"What it is for, of: {', '.join(KeyScope)}; all.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A model that it is for, or a pattern with * and ?; all.")
    ] = None,
    concurrency: Annotated[int, typer.Option(min=0, metavar="N", help="Requests at once; 0: no bound.")] = 0,
    rpm: Annotated[int, typer.Option(min=0, metavar="N", help="Requests a minute; 0: no bound.")] = 0,
    tpm: Annotated[int, typer.Option(min=0, metavar="N", help="Tokens a minute; 0: no bound.")] = 0,
    tpd: Annotated[int, typer.Option(min=0, metavar="N", help="Tokens a day; 0: no bound.")] = 0,
    queue_share: Annotated[
        float, typer.Option(min=0.001, max=1.0, metavar="PART", help="The part of a queue that it may fill.")
    ] = 1.0,
    weight: Annotated[
        float, typer.Option(min=0.01, max=1000.0, metavar="W", help="Its part when keys compete for places.")
    ] = 1.0,
    expires_days: Annotated[
        float, typer.Option(min=0.0, metavar="DAYS", help="How long it is good; 0: until it is revoked.")
    ] = 0.0,
    cache_salt: Annotated[
        bool, typer.Option("--cache-salt", metavar="", help="Keep its prompts apart in the engines' prefix cache.")
    ] = False,
) -> None:
    """Make a key for a client. It is shown this once.

    Further limits can be set in the file of keys or by the admin API.
    """
    from gateway.cli.keys import check_id, run_create

    check_id(id)
    limits = {
        "concurrency": concurrency or None,
        "requests_per_minute": rpm or None,
        "tokens_per_minute": tpm or None,
        "tokens_per_day": tpd or None,
        "queue_share": queue_share,
    }
    wanted = {
        "name": name,
        "id": id,
        "scopes": [it.value for it in scope or KeyScope],
        "models": model or ["*"],
        "limits": limits,
        "weight": weight,
        "cache_salt": cache_salt,
        "expires_s": expires_days * 86_400.0 or None,
    }
    run_create(options, wanted, as_json=as_json)


@asks
def keys_list(options: Options, *, as_json: bool) -> None:
    """List every key of a client, ended ones among them; never a key itself."""
    from gateway.cli.keys import run_list

    run_list(options, as_json=as_json)


@asks
def keys_show(options: Options, *, as_json: bool, id: IdArgument) -> None:
    """Show everything that is known of one key, save the key."""
    from gateway.cli.keys import run_show

    run_show(options, id, as_json=as_json)


@asks
def keys_revoke(options: Options, *, as_json: bool, id: IdArgument) -> None:
    """End a key: new requests with it get 401 within seconds, open answers go on to their end."""
    from gateway.cli.keys import run_revoke

    run_revoke(options, id, as_json=as_json)
