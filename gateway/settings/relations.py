"""What must hold between settings: one port for one purpose, unique names, waits that fit each other.

Not a station.  Works on whatever parts of the data are good by themselves, so that these faults come together with
all others and not one night later.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from gateway.core.address import Address, link_path, socket_path_fault
from gateway.settings.addresses import parse_listen, parse_url
from gateway.settings.faults import Path, spell
from gateway.settings.install import Auth, Clients, Operators
from gateway.settings.runtime import Limits, Probes, Timers
from gateway.settings.section import Section

AnySection = TypeVar("AnySection", bound=Section)


@dataclass(frozen=True, slots=True)
class Broken:
    """A relation that does not hold, said of the value at ``path``."""

    path: Path
    message: str


def broken(data: dict[str, Any]) -> Iterator[Broken]:
    """Every relation that ``data`` (nested like the file) breaks; parts that are bad by themselves are left out."""
    yield from _listeners(data)
    yield from _tls(data)
    yield from _waits(data)
    yield from _bounds(data)
    yield from _pools(data)
    yield from _backends(data)
    yield from _reasoning(data)


def _listeners(data: dict[str, Any]) -> Iterator[Broken]:
    clients, operators = _good(Clients, data.get("clients")), _good(Operators, data.get("operators"))
    auth = _good(Auth, data.get("auth"))
    taken: dict[Address, Path] = {}
    ports: dict[int, str] = {}
    for section, listen in (("clients", clients and clients.listen), ("operators", operators and operators.listen)):
        for at, text in enumerate(listen or ()):
            address, path = parse_listen(text), (section, "listen", at)
            if address.port and ports.get(address.port, section) != section:
                yield Broken(path, f"port {address.port} is a port of the clients; operators need one of their own")
            elif address in taken:
                yield Broken(path, f"the same address as {spell(taken[address])}")
            elif section == "clients" and auth is not None and auth.clients == "none" and not address.is_private:
                yield Broken(
                    path,
                    f"{address} can be reached from other machines while auth.clients is none; listen on 127.0.0.1, "
                    "[::1] or unix:/path, or ask for keys (auth.clients: keys)",
                )
            taken.setdefault(address, path)
            ports.setdefault(address.port, section)


def _tls(data: dict[str, Any]) -> Iterator[Broken]:
    clients = _good(Clients, data.get("clients"))
    if clients is None:
        return
    for given, lacking in (("certificate", "key"), ("key", "certificate")):
        if getattr(clients.tls, given) and not getattr(clients.tls, lacking):
            yield Broken(("clients", "tls", given), f"needs a {lacking} beside it")


def _waits(data: dict[str, Any]) -> Iterator[Broken]:
    timers, probes = _good(Timers, data.get("timers")), _good(Probes, data.get("probes"))
    if timers is None:
        return
    if timers.silent_max_s < timers.stall_s:
        yield Broken(("timers", "silent_max_s"), f"must be at least timers.stall_s ({timers.stall_s:g})")
    if timers.first_event_s < timers.connect_s:
        yield Broken(("timers", "first_event_s"), f"must be at least timers.connect_s ({timers.connect_s:g})")
    if 0 < timers.total_s <= timers.connect_s:
        yield Broken(("timers", "total_s"), f"must be more than timers.connect_s ({timers.connect_s:g}), or 0 for off")
    if probes is not None and timers.pulse_fresh_s < 2 * probes.scrape_s:
        yield Broken(
            ("timers", "pulse_fresh_s"),
            f"must be at least twice probes.scrape_s ({probes.scrape_s:g}), or no reading counts",
        )


def _bounds(data: dict[str, Any]) -> Iterator[Broken]:
    limits = _good(Limits, data.get("limits"))
    if limits is not None and limits.hold_bytes < limits.event_bytes:
        yield Broken(("limits", "hold_bytes"), f"must be at least limits.event_bytes ({limits.event_bytes})")
    if limits is not None and limits.receiving_bytes < limits.body_bytes:
        yield Broken(("limits", "receiving_bytes"), f"must be at least limits.body_bytes ({limits.body_bytes})")
    given = data.get("runtime_dir")
    if isinstance(given, str) and (fault := socket_path_fault(link_path(str(pathlib.Path(given).absolute())))):
        yield Broken(("runtime_dir",), f"too deep for the socket in it: {fault}")


def _pools(data: dict[str, Any]) -> Iterator[Broken]:
    pools: dict[str, Path] = {}
    models: dict[str, Path] = {}
    for path, pool in _each(data.get("pools"), ("pools",)):
        yield from _twice(pools, pool.get("name"), (*path, "name"), what="pool")
        for at, model in enumerate(_list(pool.get("models"))):
            yield from _twice(models, model, (*path, "models", at), what="model")
        adapters = dict(_each(pool.get("lora"), (*path, "lora")))
        for place, adapter in adapters.items():
            yield from _twice(models, adapter.get("name"), (*place, "name"), what="model")
        own = _list(pool.get("models"))
        known = (*own, *(it.get("name") for it in adapters.values()))
        for at, alias in enumerate(_list(pool.get("aliases"))):
            if not isinstance(alias, dict):
                continue
            yield from _twice(models, alias.get("name"), (*path, "aliases", at, "name"), what="model")
            if own and isinstance(alias.get("model"), str) and alias["model"] not in known:
                yield Broken((*path, "aliases", at, "model"), "not among the pool's models")
        wanted, count = pool.get("min_available"), len(_list(pool.get("backends")))
        if isinstance(wanted, int) and 0 < count < wanted:
            yield Broken((*path, "min_available"), f"more than the pool's {count} backend{'s' * (count > 1)}")


def _reasoning(data: dict[str, Any]) -> Iterator[Broken]:
    for pool_path, pool in _each(data.get("pools"), ("pools",)):
        section, path = pool.get("reasoning"), (*pool_path, "reasoning")
        if not isinstance(section, dict):
            continue
        models: dict[str, Path] = {}
        for at, entry in _each(section.get("models"), (*path, "models")):
            yield from _twice(models, entry.get("model"), (*at, "model"), what="model")
        for at, entry in ((path, section), *_each(section.get("models"), (*path, "models"))):
            if entry.get("think_opened") is True and entry.get("think_tags") is not True:
                yield Broken((*at, "think_opened"), "means something only with think_tags: true")


def _backends(data: dict[str, Any]) -> Iterator[Broken]:
    names: dict[str, Path] = {}
    urls: dict[str, Path] = {}
    clients = _good(Clients, data.get("clients"))
    own = {_as_url(parse_listen(text)) for text in clients.listen} if clients else set()
    for pool_path, pool in _each(data.get("pools"), ("pools",)):
        for path, backend in _each(pool.get("backends"), (*pool_path, "backends")):
            url = _url(backend.get("url"))
            yield from _twice(names, backend.get("name"), (*path, "name"), what="backend")
            yield from _twice(urls, url, (*path, "url"), what="url")
            if url.replace("//localhost:", "//127.0.0.1:") in own:
                yield Broken((*path, "url"), "this is the gateway's own address in clients.listen")
            if backend.get("tls_ca") and url and not url.startswith("https:"):
                yield Broken((*path, "tls_ca"), "only an https backend has a certificate to verify")


def _twice(seen: dict[str, Path], key: Any, path: Path, *, what: str) -> Iterator[Broken]:
    if not key or not isinstance(key, str):
        return
    if key in seen:
        yield Broken(path, f"the same {what} as {spell(seen[key])}")
    seen.setdefault(key, path)


def _as_url(address: Address) -> str:
    return str(address) if address.path else f"http://{address}"


def _url(given: Any) -> str:
    """``given`` in its normal form, or "" when it is bad by itself."""
    try:
        return parse_url(given) if isinstance(given, str) else ""
    except ValueError:
        return ""


def _each(given: Any, under: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The mappings in the list ``given``, each with its path."""
    return (((*under, at), item) for at, item in enumerate(_list(given)) if isinstance(item, dict))


def _good(kind: type[AnySection], given: Any) -> AnySection | None:
    """``given`` as a section, or None when it is bad by itself, which is reported elsewhere."""
    try:
        return kind.model_validate(given)
    except ValidationError:
        return None


def _list(given: Any) -> list[Any]:
    return given if isinstance(given, list) else []
