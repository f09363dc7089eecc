"""`pacekeeper check FILE`: what a configuration means, or everything that is wrong with it.

Reads the file, the environment and the certificate files that it names; opens no port and asks no backend.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from gateway.cli import words
from gateway.cli.exits import Exit
from gateway.cli.grid import Column, Piece
from gateway.cli.screen import Screen
from gateway.errors import ConfigError
from gateway.settings import Settings, load


def run(path: Path, *, as_json: bool) -> None:
    """Print what the file at ``path`` means.  Raises ConfigError (with ``as_json`` the faults are printed instead)."""
    screen = Screen()
    if not as_json:
        show(load(path), screen, path=path)
        return
    try:
        screen.json(json.dumps(summary(load(path))).encode())
    except ConfigError as error:
        screen.json(json.dumps({"good": False, "path": str(path), "faults": error.message.splitlines()}).encode())
        raise typer.Exit(Exit.USAGE) from error


def summary(settings: Settings) -> dict[str, Any]:
    """What is configured, as plain data with every default filled in."""
    return {
        "good": True,
        "path": str(settings.path),
        "overrides": list(settings.overrides),
        "install": settings.install.model_dump(mode="json"),
        "runtime": settings.runtime.model_dump(mode="json"),
    }


def show(settings: Settings, screen: Screen, *, path: Path) -> None:
    """Print ``settings`` for people."""
    install = settings.install
    backends = sum(len(pool.backends) for pool in settings.runtime.pools)
    pools = words.plural(len(settings.runtime.pools), "pool")
    screen.line(Piece(f"{path} is good: {words.plural(backends, 'backend')} in {pools}.", "good"))
    screen.line()
    scheme = "https" if install.clients.tls.certificate else "http"
    keys = f"keys in {install.auth.keys_file}" if install.auth.clients == "keys" else "no keys"
    listen = ", ".join(_reached(address, scheme=scheme) for address in install.clients.listen)
    screen.pair("clients", listen, Piece(f"  {keys}", "dim"))
    screen.pair("operators", ", ".join(_reached(address) for address in install.operators.listen))
    workers = "one per processor" if install.workers == "auto" else str(install.workers)
    screen.pair("workers", workers)
    screen.pair("runtime", f"{install.runtime_dir}")
    store = install.store
    keep = f"  {words.plural(round(store.keep_days), 'day')}, at most {words.size(store.keep_bytes)}"
    screen.pair("history", str(store.path), Piece(keep, "dim"))
    screen.pair("log", f"{install.log.level} and above, as {install.log.format}")
    if settings.overrides:
        screen.pair("overridden", f"by {', '.join(settings.overrides)}")
    _other_names(settings, screen)
    screen.line()
    _backends(settings, screen)


def _reached(address: str, *, scheme: str = "http") -> str:
    return address if address.startswith("unix:") else f"{scheme}://{address}"


def _other_names(settings: Settings, screen: Screen) -> None:
    """What clients may ask for besides the models of the table."""
    pools = settings.runtime.pools
    if aliases := [f"{alias.name} for {alias.model}" for pool in pools for alias in pool.aliases]:
        screen.pair("aliases", ", ".join(aliases))
    if adapters := [f"{it.name}{'' if it.load else ' (on order)'}" for pool in pools for it in pool.lora]:
        screen.pair("adapters", ", ".join(adapters))


def _backends(settings: Settings, screen: Screen) -> None:
    columns = [
        Column(title="POOL", least=8),
        Column(title="BACKEND", least=8),
        Column(title="URL", least=20),
        Column(title="KEY FROM", least=8, rank=2),
        Column(title="VERIFIED BY", least=12, rank=3),
        Column(title="MODELS", least=12, rank=1),
    ]
    rows = [
        (
            pool.name,
            backend.name,
            backend.url,
            backend.api_key_env or words.UNKNOWN,
            _verified_by(backend.url, backend.tls_ca),
            ", ".join(pool.models) or Piece("as the backend reports", "dim"),
        )
        for pool in settings.runtime.pools
        for backend in pool.backends
    ]
    screen.grid(columns, rows)


def _verified_by(url: str, tls_ca: str) -> str:
    if not url.startswith("https:"):
        return words.UNKNOWN
    return tls_ca or "the system"
