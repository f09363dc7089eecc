"""An admin API on a real socket over fakes: control, history and feed in memory, a token of each scope."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.admin.audit import AuditEntry
from gateway.admin.limits import AdminLimits
from gateway.admin.listen import AdminListener
from gateway.admin.server import STREAMS, build_admin
from gateway.admin.tokens import Scope, Token, TokenTable, digest_of
from tests.fakes.operators import FakeAdapters, FakeKeys, FakeOperations, MemoryFeed, MemoryHistory
from tests.integration.raw_http import Answer, ask, head_of

METRICS = b"# HELP x y\n# TYPE x gauge\nx 1\n"


async def _metrics_page() -> bytes:
    return METRICS


class AdminStand:
    """The API and everything behind it; ``faults`` and ``audit`` collect what it told."""

    def __init__(self, limits: AdminLimits, *, unix: Path | None = None) -> None:
        self.operations = FakeOperations()
        self.history = MemoryHistory()
        self.keys = FakeKeys()
        self.adapters = FakeAdapters()
        self.feed = MemoryFeed(keep=400)
        self.audit: list[AuditEntry] = []
        self.faults: list[BaseException] = []
        self.socket = _listening(unix)
        self.unix = unix
        tokens = [
            Token(name=f"{scope.word}-token", scope=scope, digest=digest_of(f"{scope.word}-secret"))
            for scope in (Scope.READ, Scope.OPERATE, Scope.ADMIN)
        ]
        self.app = build_admin(
            self.operations,
            self.history,
            self.feed,
            metrics_page=_metrics_page,
            tokens=TokenTable(tokens),
            audit=self.audit.append,
            on_fault=self.faults.append,
            listen=[f"unix:{unix}" if unix else self.host],
            version="1.2.3",
            limits=limits,
            now_wall=lambda: 1_700_000_000.0,
            keys=self.keys,
            adapters=self.adapters,
        )
        self.listener = AdminListener(self.app, [self.socket], limits=limits)

    @property
    def host(self) -> str:
        """What belongs into the Host header."""
        return "localhost" if self.unix else f"127.0.0.1:{self.socket.getsockname()[1]}"

    @property
    def streams(self) -> int:
        """Open event streams."""
        return self.app[STREAMS].open

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A fresh connection."""
        if self.unix is not None:
            return await asyncio.open_unix_connection(self.unix)
        return await asyncio.open_connection(*self.socket.getsockname())

    def head(
        self, method: str, target: str, *, scope: str = "admin", more: Mapping[str, str] = {}, body: bytes = b""
    ) -> bytes:
        """A request head with the token of that scope ("": none)."""
        headers = {"Host": self.host}
        if scope:
            headers["Authorization"] = f"Bearer {scope}-secret"
        return head_of(method, target, headers | dict(more), body=body)

    async def ask(
        self, method: str, target: str, *, scope: str = "admin", more: Mapping[str, str] = {}, body: bytes = b""
    ) -> Answer:
        """One request and its answer."""
        head = self.head(method, target, scope=scope, more=more, body=body)
        return await ask(*await self.connect(), head + body, head_only=method == "HEAD")


@asynccontextmanager
async def admin_stand(limits: AdminLimits | None = None, *, unix: Path | None = None) -> AsyncIterator[AdminStand]:
    """A running stand; checks at the end that nothing failed unseen."""
    stand = AdminStand(limits or AdminLimits(), unix=unix)
    await stand.listener.start()
    try:
        yield stand
    finally:
        await stand.listener.close()
        assert stand.streams == 0
    assert stand.faults == []


def _listening(unix: Path | None) -> socket.socket:
    made = socket.socket(socket.AF_UNIX if unix else socket.AF_INET, socket.SOCK_STREAM)
    made.bind(str(unix) if unix else ("127.0.0.1", 0))
    made.listen(64)
    made.setblocking(False)
    return made
