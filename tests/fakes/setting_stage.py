"""Where a setting is tried: one value of it, in a whole configuration, through the same ways as in a gateway.

From the text of a file to the settings, from there to the fleet and its snapshot, to the request flow or to a whole
worker.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway.app.spec import InstallSpec, install_spec, write_spec
from gateway.core.link.messages import NewSnapshot
from gateway.core.routing.snapshot import Snapshot
from gateway.fleet import Fleet
from gateway.settings import Settings, parse
from tests.fakes.backend import ScriptedBackend
from tests.fakes.fleets import GOOD, cards
from tests.fakes.worker import FakeWorker, running_worker
from tests.fakes.worker_shell import running_shell

NOWHERE = "http://127.0.0.1:9"


@dataclass(frozen=True, slots=True)
class Stage:
    """One setting at one value; ``given`` maps paths, as the reference page spells them, to values."""

    folder: Path
    given: Mapping[str, Any] = field(default_factory=dict)

    def text(self, *urls: str) -> str:
        """The configuration file of a gateway with one pool of backends at ``urls``, of names a, b and so on."""
        backends = [{"name": name, "url": url} for name, url in zip("abcd", urls or (NOWHERE,), strict=False)]
        data: dict[str, Any] = {
            "runtime_dir": str(self.folder / "run"),
            "store": {"path": str(self.folder / "history.db")},
            "pools": [{"name": "main", "backends": backends}],
        }
        for path, value in self.given.items():
            put(data, path, value=value)
        return json.dumps(data)

    def settings(self, *urls: str) -> Settings:
        """The settings of such a gateway."""
        return parse(self.text(*urls), str(self.folder / "gateway.yaml"), environ=os.environ)

    def installed(self) -> InstallSpec:
        """What every process of such a gateway is told; file and specification are written, as by the command."""
        (self.folder / "gateway.yaml").write_text(self.text(), encoding="utf-8")
        spec = install_spec(self.settings())
        write_spec(spec)
        return spec

    def snapshot(self, *urls: str) -> Snapshot:
        """What workers of such a gateway get, all backends serving the model "tiny"."""
        runtime = self.settings(*urls).runtime
        fleet = Fleet(runtime, generation=0, now=0.0)
        for pool in runtime.pools:
            for backend in pool.backends:
                fleet.discovered(backend.name, cards("tiny"), version="1")
                fleet.notice(backend.name, GOOD, now=1.0)
        return fleet.snapshot()

    @asynccontextmanager
    async def flow(self) -> AsyncIterator[tuple[ScriptedBackend, FakeWorker]]:
        """A backend, and the request flow in front of it."""
        async with ScriptedBackend() as backend, running_worker(idle_s=100_000) as worker:
            worker.desk.apply(NewSnapshot(snapshot=self.snapshot(backend.url)))
            yield backend, worker

    @asynccontextmanager
    async def whole_worker(self) -> AsyncIterator[tuple[ScriptedBackend, int]]:
        """A backend, and the port of a whole worker in front of it."""
        async with ScriptedBackend() as backend, running_shell(self.installed(), self.snapshot(backend.url)) as port:
            yield backend, port


def put(data: dict[str, Any], path: str, *, value: object) -> None:
    """Set ``pools[].backends[].url`` and the like; of a list the first entry."""
    *parents, last = path.replace("[]", ".0").split(".")
    here: Any = data
    for part in parents:
        here = here[0] if part == "0" else here.setdefault(part, {})
    here[last] = value
