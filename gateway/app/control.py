"""Builds the control process: fleet, watches, link, history, metrics and admin API, and the order of their lives.

Up within a second or two whatever the backends do: a first look at them is bounded, and workers are told nothing
before it.  A store or a runtime directory that cannot be used is the operator's to mend and ends the start; everything
that fails later is told and lived with.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, cast

from gateway import __version__, aio
from gateway.admin.listen import AdminListener
from gateway.admin.server import build_admin
from gateway.admin.tokens import TokenTable, load_or_make_token
from gateway.app.clients import clients_of, keys_file_of, read_usage
from gateway.app.restart import restart_needed
from gateway.app.spec import SPEC_NAME, InstallSpec
from gateway.app.tellers import audit_teller, keepsake_teller, store_teller
from gateway.control.adapters import AdapterDesk
from gateway.control.ingest import Ingest
from gateway.control.keeper import Keeper
from gateway.control.keepsake import Keepsake
from gateway.control.keysfile import KeysFile
from gateway.control.link import LinkServer
from gateway.control.loop import ControlLoop, Tools
from gateway.control.operations import ControlOperations, Installation, read_config
from gateway.control.roster import Roster
from gateway.control.state import ControlState
from gateway.core.admission.ledger import Ledger
from gateway.core.admission.shares import ShareBook
from gateway.errors import ConfigError, RuntimeDirUnusable
from gateway.fleet import Fleet
from gateway.settings import Settings, parse
from gateway.settings.keys import write_keys
from gateway.store.history import SqliteHistory
from gateway.store.policy import StorePolicy
from gateway.telemetry.bus import Bus
from gateway.telemetry.eventlog import EventLog
from gateway.telemetry.events import EventName
from gateway.telemetry.logs import LibraryHandler, make_log, open_writer
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.writer import LogWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class _Voice:
    """Everything by which control tells what happens."""

    writer: LogWriter
    bus: Bus
    events: EventLog
    metrics: Metrics


LIFE_STRIDE: Final = 1000
"""What generations jump by from one life to the next: the last few of a life may not have reached the disk."""


class ControlShell:
    """The control process; ``ready`` is called when it works, and again when a reload is through."""

    def __init__(self, spec: InstallSpec, operator_listeners: list[socket.socket]) -> None:
        """``operator_listeners`` are bound, listening sockets for operators."""
        self.ready: Callable[[], None] = lambda: None
        self._spec = spec
        self._listeners = operator_listeners
        self._environ = dict(os.environ)
        self._stop = asyncio.Event()
        self._broken = False
        self._operations: ControlOperations | None = None
        self._loop: ControlLoop | None = None
        self._keys_file: KeysFile | None = None
        self._nursery = aio.Nursery(self._task_failed)

    async def run(self) -> int:
        """Control until stopped; 0, or 1 after a defect that only a new process mends.

        Raises ConfigError, StoreUnusable or RuntimeDirUnusable when it cannot even begin.
        """
        with _speaking(self._spec) as voice:
            async with AsyncExitStack() as lives:
                await self._begin(voice, lives)
                self.ready()
                await self._stop.wait()
            voice.events.emit(EventName.CONTROL_STOPPED)
        return 1 if self._broken else 0

    def stop(self, deadline_s: float) -> None:
        """Have :meth:`run` end; everything that closes bounds itself, so ``deadline_s`` needs no timer."""
        del deadline_s
        self._stop.set()

    def reload(self) -> None:
        """Read the configuration again; ``ready`` is called when that is through, whatever came of it."""
        if self._operations is not None:
            self._nursery.spawn(self._reload(self._operations), name="reload")

    async def _reload(self, operations: ControlOperations) -> None:
        await operations.reload()
        self.ready()

    # --- the order of lives: each is ended by ``lives`` before those that began earlier ---------------------------

    async def _begin(self, voice: _Voice, lives: AsyncExitStack) -> None:
        began = time.monotonic()
        keepsake = Keepsake(Path(self._spec.runtime_dir))
        keeper = Keeper(keepsake, on_problem=keepsake_teller(voice.events))
        lives.push_async_callback(keeper.close)
        self._keys_file = keys_file = keys_file_of(self._spec)
        state = self._state(voice, keepsake=keepsake, keeper=keeper)
        token = load_or_make_token(Path(self._spec.runtime_dir))

        history = SqliteHistory(_store_policy(self._spec), on_event=store_teller(voice.events))
        await history.start()
        lives.push_async_callback(history.close)
        await read_usage(state.clients, history)

        self._loop = loop = self._control_loop(state, voice, keeper=keeper, history=history)
        lives.push_async_callback(loop.close)
        self._operations = operations = self._control_operations(loop, voice, keeper=keeper, history=history)
        voice.metrics.follow(operations.figures)
        if keys_file is not None:
            keys_file.post = loop.post
            voice.metrics.keys.allow(key.id for key in keys_file.all())

        adapters = AdapterDesk(loop, loop.tools, orders=keepsake.adapters())
        admin = build_admin(
            operations,
            history,
            voice.bus,
            metrics_page=voice.metrics.page,
            tokens=TokenTable([token]),
            audit=audit_teller(voice.events),
            on_fault=lambda error: loop.failed("admin request", error),
            listen=self._spec.operators,
            names=self._spec.operator_names,
            version=__version__,
            keys=keys_file,
            adapters=adapters,
        )
        listener = AdminListener(admin, self._listeners)
        await listener.start()
        lives.push_async_callback(listener.close)

        await loop.begin()
        await keeper.written()  # what workers are told first must be what a next life starts from
        link = LinkServer(self._spec.link_path, on_message=loop.worker_said, on_gone=loop.worker_left)
        loop.outlet = link
        await _start_link(link, self._spec.link_path)
        lives.push_async_callback(link.close)
        lives.push_async_callback(self._nursery.close)
        self._nursery.spawn(loop.run(), name="control loop")
        self._nursery.spawn(adapters.run(), name="adapters")
        if keys_file is not None:
            self._nursery.spawn(keys_file.run(), name="keys file")
        voice.events.emit(
            EventName.CONTROL_STARTED,
            version=__version__,
            pid=os.getpid(),
            config_path=self._spec.config_path,
            backends=len(loop.state.fleet.configs()),
            first_round_s=round(time.monotonic() - began, 3),
        )

    def _state(self, voice: _Voice, *, keepsake: Keepsake, keeper: Keeper) -> ControlState:
        """Everything that is decided upon, as an earlier life left it.  Raises ConfigError."""
        applied = keepsake.config(newer_than=Path(self._spec.runtime_dir) / SPEC_NAME)
        settings = self._configuration(applied, keeper)
        generation, remembered = keepsake.fleet()
        generation += LIFE_STRIDE if generation else 0
        now = time.monotonic()
        fleet = Fleet(
            settings.runtime, generation=generation, now=now, remembered=remembered, orders=keepsake.adapters()
        )
        workers, inherited = self._spec.workers, bool(applied)
        roster = Roster(
            models=voice.metrics.models,
            backends=voice.metrics.backends,
            shares=ShareBook(workers=workers, inherited=inherited, now=now),
            ledger=Ledger(workers=workers, inherited=inherited),
            workers=workers,
        )
        clients = clients_of(self._spec, self._keys_file, keepsake)
        if clients.keys is not None:
            keeper.keep_keys(write_keys(clients.keys))
        return ControlState(fleet, roster, clients=clients)

    def _configuration(self, applied: str, keeper: Keeper) -> Settings:
        """What an earlier life of this installation had ``applied``, else the file.  Raises ConfigError.

        So a control that is killed while somebody edits the file comes back with the fleet that it had.
        """
        path = Path(self._spec.config_path)
        if applied:
            try:
                return parse(applied, str(path), environ=self._environ, look_at_host=False)
            except ConfigError:
                pass  # the file may be better
        text, settings = read_config(path, self._environ)
        keeper.keep_config(text)
        return settings

    def _control_loop(
        self, state: ControlState, voice: _Voice, *, keeper: Keeper, history: SqliteHistory
    ) -> ControlLoop:
        tools = Tools(
            ingest=Ingest(history=history, metrics=voice.metrics, events=voice.events),
            events=voice.events,
            metrics=voice.metrics,
            keeper=keeper,
            environ=self._environ,
            clock=time.monotonic,
        )
        return ControlLoop(state, tools)

    def _control_operations(
        self, loop: ControlLoop, voice: _Voice, *, keeper: Keeper, history: SqliteHistory
    ) -> ControlOperations:
        installation = Installation(
            version=__version__,
            started_wall=time.time(),
            config_path=Path(self._spec.config_path),
            environ=self._environ,
            restart_needed=lambda settings: restart_needed(self._spec, settings),
        )
        return ControlOperations(
            loop,
            installation,
            history=history,
            events=voice.events,
            keeper=keeper,
            clock=time.monotonic,
            wall=time.time,
            log_dropped=lambda: voice.writer.dropped,
            keys_file=self._keys_file,
        )

    def _task_failed(self, task: str, error: BaseException) -> None:
        """Without its loop control is of no use: it ends, and the supervisor starts another."""
        if self._loop is not None:
            self._loop.failed(task, error)
        if task != "reload":
            self._broken = True
            self._stop.set()


@contextmanager
def _speaking(spec: InstallSpec) -> Iterator[_Voice]:
    """Log, live feed and metrics, from before the first thing that can be told until after the last."""
    form = cast('Literal["json", "console"]', spec.log_format)
    level = cast('Literal["debug", "info", "warning", "error"]', spec.log_level)
    writer = open_writer(sys.stderr.fileno(), format=form)
    log = make_log(writer, format=form, level=level)
    handler = LibraryHandler(log)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        # Numbers from the clock grow over restarts, so readers of the feed who come back miss nothing.
        bus = Bus(first_id=int(time.time() * 1000))
        yield _Voice(writer=writer, bus=bus, events=EventLog(log, bus), metrics=Metrics())
    finally:
        root.removeHandler(handler)
        writer.close()


async def _start_link(link: LinkServer, path: str) -> None:
    try:
        await link.start()
    except OSError as error:
        raise RuntimeDirUnusable(f"{path}: no socket for the workers can be made: {error.strerror or error}") from error


def _store_policy(spec: InstallSpec) -> StorePolicy:
    return StorePolicy(
        path=Path(spec.store_path), keep_days=spec.store_keep_s / 86400.0, keep_bytes=spec.store_keep_bytes
    )
