"""A simulated server's life: loading with the port bound and refused, serving, and every end that was recorded.

Shell.  Owner of the process's phase, of its listening socket and of its child.  SIGTERM while loading is ignored once
there is a child; an engine's death ends the process with code 0; SIGKILL leaves the child, which keeps the memory.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from enum import StrEnum
from random import Random
from typing import Final

from gateway.aio import Nursery
from gateway.simulator.arguments import custom_allreduce
from gateway.simulator.card import Card, worker_pids
from gateway.simulator.core_child import CoreChild
from gateway.simulator.core_start import CoreStart, StartFailed
from gateway.simulator.engine import SimEngine
from gateway.simulator.face import Face, Mood
from gateway.simulator.ids import Ids
from gateway.simulator.injector import Injector
from gateway.simulator.launch import Launch, SigtermEnding
from gateway.simulator.listening import bind, listen, release, url_of
from gateway.simulator.loadlog import Speaker, load_lines, milestones
from gateway.simulator.printer import Printer
from gateway.simulator.spec import ServerSpec
from gateway.simulator.wire import Connection

_CORE_FAILED: Final = "RuntimeError: Engine core initialization failed. See root cause above."
_INTERRUPTED: Final = -signal.SIGINT
# How often each ending was seen of 0.32 on two cores: five recorded, nine since.
_SEEN: Final = {SigtermEnding.ABORT: 8, SigtermEnding.HANG: 5, SigtermEnding.ERROR: 1}
# Seconds from a blow to what follows, as recorded (0.32 on two cores, 0.26 on an H200).
_PORT_CLOSES_S: Final = 0.05
_EXITS_S: Final = 0.35
_DEATH_NOTICED_S: Final = 0.05
_DEAD_PORT_CLOSES_S: Final = 0.3
_DRAIN_TAIL_S: Final = 3.4


class Phase(StrEnum):
    """Where the process is in its life."""

    LOADING = "loading"
    SERVING = "serving"
    DRAINING = "draining"
    ENDING = "ending"


class ServerProcess:
    """Owner of the life of one simulated server."""

    def __init__(self, launch: Launch, spec: ServerSpec, *, printer: Printer) -> None:
        self._launch = launch
        self._spec = spec
        self._print = printer
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        self._nursery = Nursery(self._task_failed)
        self._child = CoreChild(self._core_died)
        self.card = Card(launch.card, launch.preset.box, say=self._print.simulation)
        self._listener: asyncio.Server | None = None
        self._seed = launch.seed_of(self.card.count_start())
        self._random = Random(f"process/{self._seed}")  # noqa: S311 - a simulation, no secret
        self.sigterm = launch.sigterm
        self.phase = Phase.LOADING
        self.engine = SimEngine(
            launch.preset,
            seed=self._seed,
            environment=launch.environment,
            arguments=launch.arguments,
            started_at=launch.served_since,
            host=self.card.host(),
        )
        self.injector = Injector(self.card, self.engine, crash=self._child.crash)
        self._start = CoreStart(launch, spec, card=self.card, engine=self.engine, child=self._child)
        self.face: Face | None = None

    @property
    def core_pid(self) -> int | None:
        """The process id of EngineCore."""
        return self._child.pid

    @property
    def is_stuck(self) -> bool:
        """Whether the start hangs in NCCL."""
        return self._start.is_stuck

    async def run(self) -> int:
        """Live to the end; return the exit code."""
        for number, act in ((signal.SIGTERM, self._terminated), (signal.SIGINT, self._interrupted)):
            self._loop.add_signal_handler(number, act)
        bound = bind(self._launch)
        self._nursery.spawn(self._begin(bound), name="load")
        self._nursery.spawn(self.injector.follow(), name="box")
        try:
            return await self._ended
        finally:
            self.phase = Phase.ENDING
            await self._nursery.close()
            await self._child.end()
            bound.close()
            release(self._launch)

    def _task_failed(self, name: str, error: BaseException) -> None:
        try:
            self._print.line(Speaker.API, f"{name} failed: {error!r}", source="process.py:1", level="ERROR")
        finally:  # also when nothing can be printed
            self._end(1)

    def _end(self, code: int) -> None:
        if not self._ended.done():
            self._ended.set_result(code)

    # -- loading ----------------------------------------------------------------------------------

    async def _begin(self, bound: socket.socket) -> None:
        try:
            await self._load(bound)
        except StartFailed as failed:
            self._print.line(Speaker.CORE, str(failed), source="core.py:1210", level="ERROR", pid=self._child.pid)
            self._print.line(Speaker.API, _CORE_FAILED, source="utils.py:1", level="ERROR")
            self._end(1)

    async def _load(self, bound: socket.socket) -> None:
        started_s = self._loop.time()
        preset = self.engine.preset
        steps = milestones(preset)
        url = url_of(self._launch, bound)
        is_core_there = is_joined = False
        custom = custom_allreduce(self._launch.arguments)
        for line in load_lines(preset, self._spec, url=url, api_pid=os.getpid(), custom=custom):
            await self._until(started_s + line.at_s / self._launch.load_speed)
            if line.at_s >= steps.core_s and not is_core_there:
                is_core_there = True
                await self._start.begin()
            if line.at_s >= steps.weights_from_s and not is_joined:
                is_joined = True
                await self._start.join(self._print)
            self._print.load_line(line, core_pid=self._child.pid or 0, worker_pids=self._worker_pids(line.speaker))
        self.face = self._make_face()
        self._listener = await listen(bound, self._connection)
        self.phase = Phase.SERVING
        self._child.heed()

    def _worker_pids(self, speaker: Speaker) -> list[int]:
        return worker_pids(self.card.folder) if speaker is Speaker.WORKER else []

    async def _until(self, at_s: float) -> None:
        await asyncio.sleep(max(0.0, at_s - self._loop.time()))

    def _make_face(self) -> Face:
        launch = self._launch
        face = Face(
            self._spec,
            self.engine,
            speed=launch.speed,
            draft_tokens=self.engine.preset.pace.draft_tokens,
            ids=Ids(self._seed),
            log=self._print.raw,
        )
        face.desk.driver.on_dead = self._child.crash
        self.injector.driver = face.desk.driver
        return face

    def _connection(self) -> Connection:
        if self.face is None:
            raise RuntimeError("no connection can come before there is a face")
        return Connection(self.face)

    # -- ends -------------------------------------------------------------------------------------

    def _terminated(self) -> None:
        """Hear a SIGTERM: it ends a start that has no EngineCore yet, and is ignored in the rest of it."""
        if self.phase is Phase.SERVING and self.face is not None:
            self._shut_down(self.face, self.sigterm)
        elif self.phase is Phase.LOADING and self._child.pid is None:
            self._end(_INTERRUPTED)

    def _interrupted(self) -> None:
        if self.phase is Phase.SERVING and self.face is not None:
            self._shut_down(self.face, SigtermEnding.ABORT)
        else:
            self._end(0)

    def _shut_down(self, face: Face, ending: SigtermEnding) -> None:
        self.phase = Phase.DRAINING
        if self._spec.shutdown_timeout_s > 0:
            self._nursery.spawn(self._drain(face), name="drain")
            return
        if ending is SigtermEnding.RACE:
            (ending,) = self._random.choices(list(_SEEN), weights=list(_SEEN.values()))
        self._nursery.spawn(self._stop(face, ending), name="stop")

    async def _drain(self, face: Face) -> None:
        face.mood = Mood.DRAINING
        self._tell_shutdown("drain", len(face.desk))
        loop_end_s = self._loop.time() + self._spec.shutdown_timeout_s
        await self._idle(face, until_s=loop_end_s)
        face.desk.abort_all()
        await asyncio.sleep(min(_DRAIN_TAIL_S, self._spec.shutdown_timeout_s) / self._launch.load_speed)
        await self._child.end()
        await self._leave(face)

    async def _stop(self, face: Face, ending: SigtermEnding) -> None:
        self._tell_shutdown("abort", len(face.desk))
        match ending:
            case SigtermEnding.HANG:
                face.fall_silent()
            case SigtermEnding.ERROR:
                face.engine_died()
            case _:
                face.mood = Mood.DRAINING
                face.desk.abort_all()
        await self._child.end()
        await asyncio.sleep(_PORT_CLOSES_S)
        await self._leave(face)

    def _tell_shutdown(self, mode: str, count: int) -> None:
        timeout_s = self._spec.shutdown_timeout_s
        text = f"[shutdown] EngineCore: start mode={mode} timeout={timeout_s:g}s"
        self._print.line(Speaker.CORE, text, source="core.py:1635", pid=self._child.pid)
        if mode == "abort":
            text = f"[shutdown] EngineCore: aborting in-flight requests count={count}"
            self._print.line(Speaker.CORE, text, source="core.py:1644", pid=self._child.pid)

    async def _leave(self, face: Face) -> None:
        """Close the port, wait for the clients that hold on, and end with code 0: what uvicorn does."""
        self._print.raw("INFO:     Shutting down")
        if self._listener is not None:
            self._listener.close()
        face.close_idle()
        if face.connections:
            self._print.raw("INFO:     Waiting for connections to close. (CTRL+C to force quit)")
            await self._idle(face, until_s=None)
        self._print.raw("INFO:     Waiting for application shutdown.")
        self._print.raw("INFO:     Application shutdown complete.")
        await asyncio.sleep(_EXITS_S - _PORT_CLOSES_S)
        self._end(0)

    async def _idle(self, face: Face, *, until_s: float | None) -> None:
        """Wait until no request is open (``until_s`` at most), or, without a bound, until every client has left."""
        changed = asyncio.Event()
        face.desk.on_idle = changed.set
        done: Callable[[], bool] = (lambda: not face.connections) if until_s is None else (lambda: not len(face.desk))
        try:
            async with asyncio.timeout_at(until_s):
                while not done():
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            pass
        finally:
            face.desk.on_idle = None

    def _core_died(self) -> None:
        """Hear that EngineCore ended by itself."""
        if self.phase is Phase.SERVING and self.face is not None:
            self.phase = Phase.ENDING
            self._nursery.spawn(self._die(self.face), name="die")
        elif self.phase is Phase.LOADING:
            self._print.line(Speaker.API, _CORE_FAILED, source="utils.py:1", level="ERROR")
            self._end(1)

    async def _die(self, face: Face) -> None:
        await asyncio.sleep(_DEATH_NOTICED_S)
        text = "[shutdown] MPClient: engine core exited unexpectedly; starting cleanup"
        self._print.line(Speaker.API, text, source="core_client.py:702", level="WARNING")
        face.engine_died()
        await asyncio.sleep(_DEAD_PORT_CLOSES_S)
        await self._leave(face)
