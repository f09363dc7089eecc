"""Configurations and fleets in memory, for tests of control."""

from __future__ import annotations

from gateway.core.routing.evidence import Probed, ProbeResult
from gateway.core.routing.snapshot import ModelCard
from gateway.fleet import Fleet, Remembered
from gateway.settings import Backend, Pool, Runtime

GOOD = Probed(result=ProbeResult.OK)
REFUSED = Probed(result=ProbeResult.REFUSED)
SLOW = Probed(result=ProbeResult.TIMEOUT)


def backend(name: str, **given: object) -> Backend:
    """A backend at a port of its own."""
    port = 8001 + ord(name[0]) - ord("a")
    return Backend.model_validate({"name": name, "url": f"http://127.0.0.1:{port}"} | given)


def pool(name: str, *backends: Backend | str, **given: object) -> Pool:
    """A pool of backends, given whole or by name."""
    members = tuple(backend(it) if isinstance(it, str) else it for it in backends)
    return Pool.model_validate({"name": name, "backends": members} | given)


def runtime(*pools: Pool, **given: object) -> Runtime:
    """The runtime part of a configuration."""
    return Runtime.model_validate({"pools": pools} | given)


def fleet(*pools: Pool, remembered: tuple[Remembered, ...] = (), **given: object) -> Fleet:
    """A fleet that begins at 0 s."""
    return Fleet(runtime(*pools, **given), generation=0, now=0.0, remembered=remembered)


def cards(*names: str, stamp: int = 0) -> tuple[ModelCard, ...]:
    """Model cards as backends send them; ``stamp`` is what changes from answer to answer."""
    return tuple(ModelCard(id=name, raw=b'{"id":"%b","created":%d}' % (name.encode(), stamp)) for name in names)
