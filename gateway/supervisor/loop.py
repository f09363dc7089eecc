"""The supervisor's loop: what it sees becomes an event, what supervision decides is done at once.

One thread, one selector, no tasks: signals, tethers, ends of children and the passing of time.  Everything that is a
decision is in ``gateway.core.supervision``.  Whatever ends this process, its children see their tethers end and follow.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FrameType
from typing import Final, assert_never

from gateway.core.supervision.state import (
    Announce,
    CloseListeners,
    Ended,
    Exit,
    Heard,
    Kill,
    ListenersClosed,
    Name,
    ReloadAsked,
    Role,
    Spawn,
    StopAsked,
    SupervisionAction,
    SupervisionEvent,
    Tell,
    Tick,
    begin,
)
from gateway.core.supervision.step import is_fresh, next_at, step
from gateway.supervisor.descriptors import raise_descriptor_limit
from gateway.supervisor.notify import Notifier, for_children
from gateway.supervisor.plan import Plan
from gateway.supervisor.processes import Process, spawn
from gateway.supervisor.sockets import Listeners, open_listeners
from gateway.telemetry.stderr import stderr_logging

_QUEUE_LOOK_S: Final = 0.002
_FAILED_SPAWN: Final = 71
"""Exit code that stands for a process that could not be started at all (EX_OSERR)."""

log = logging.getLogger("gateway.supervisor")


def run(plan: Plan, *, environ: Mapping[str, str] | None = None) -> int:
    """Serve until stopped; returns the exit code.  Must run in the main thread (signals).

    Raises PortInUse or OperatorError, before any child is started, when an address cannot be listened on.
    """
    environ = os.environ if environ is None else environ
    with ExitStack() as held:
        held.enter_context(stderr_logging(process="supervisor", form=plan.log_format, level=plan.log_level))
        listeners = held.enter_context(
            open_listeners(clients=plan.clients, operators=plan.operators, slots=plan.workers, environ=environ)
        )
        raise_descriptor_limit()
        notifier = Notifier(environ)
        held.callback(notifier.close)
        signals = held.enter_context(_signals())
        return Supervisor(plan, listeners=listeners, notifier=notifier, environ=for_children(environ)).run(signals)


class Supervisor:
    """Owns the children and the state of supervision."""

    def __init__(self, plan: Plan, *, listeners: Listeners, notifier: Notifier, environ: Mapping[str, str]) -> None:
        self._plan = plan
        self._listeners = listeners
        self._notifier = notifier
        self._environ = environ
        self._state = begin(workers=plan.workers, now=time.monotonic())
        self._processes: dict[Name, Process] = {}
        self._selector = selectors.DefaultSelector()
        self._close_by: float | None = None
        self._feed_at = 0.0
        self._exit_code: int | None = None

    def run(self, signals: socket.socket) -> int:
        """Loop until supervision says Exit.  ``signals`` yields the number of each signal as a byte."""
        log.info(
            "supervisor.listening",
            extra={
                "pid": os.getpid(),
                "clients": self._listeners.client_addresses,
                "operators": self._listeners.operator_addresses,
                "workers": self._plan.workers,
            },
        )
        self._selector.register(signals, selectors.EVENT_READ, partial(self._signalled, signals))
        try:
            while self._exit_code is None:
                self._happened(Tick())
                self._look_at_queues()
                self._feed_watchdog()
                if self._exit_code is None:
                    self._wait()
        finally:
            for process in self._processes.values():
                process.kill()
                process.reap()
            self._selector.close()
        log.info("supervisor.ended", extra={"status": self._exit_code})
        return self._exit_code

    def _wait(self) -> None:
        """Sleep until something happens or is due; then take up everything that did happen."""
        for key, _ in self._selector.select(max(0.0, self._next_at() - time.monotonic())):
            take_up: Callable[[], None] = key.data
            take_up()

    def _next_at(self) -> float:
        at = next_at(self._state, policy=self._plan.policy)
        if self._close_by is not None:
            at = min(at, time.monotonic() + _QUEUE_LOOK_S)
        if self._notifier.watchdog_s is not None:
            at = min(at, self._feed_at)
        return at

    # --- what is seen -------------------------------------------------------------------------------------------

    def _signalled(self, signals: socket.socket) -> None:
        for number in signals.recv(64):
            self._happened(ReloadAsked() if number == signal.SIGHUP else StopAsked())

    def _said(self, process: Process) -> None:
        if self._processes.get(process.name) is not process or process.tether not in self._selector.get_map():
            return  # its end was taken up first, in the same round
        words = process.heard()
        if words is None:
            self._selector.unregister(process.tether)  # it has closed its end; its own end follows at the pidfd
            return
        for word in words:
            self._happened(Heard(process.name, word))

    def _process_ended(self, process: Process) -> None:
        self._said(process)  # its last words
        if process.tether in self._selector.get_map():
            self._selector.unregister(process.tether)
        self._selector.unregister(process.pidfd)
        del self._processes[process.name]
        self._happened(Ended(process.name, process.reap()))

    def _look_at_queues(self) -> None:
        if self._close_by is not None and self._listeners.refuse_clients(
            now_at_all_events=time.monotonic() >= self._close_by
        ):
            self._close_by = None
            self._happened(ListenersClosed())

    def _feed_watchdog(self) -> None:
        now = time.monotonic()
        period_s = self._notifier.watchdog_s
        if period_s is not None and now >= self._feed_at:
            self._feed_at = now + period_s / 3
            if is_fresh(self._state, policy=self._plan.policy, now=now):
                self._notifier.feed_watchdog()

    # --- what is done -------------------------------------------------------------------------------------------

    def _happened(self, event: SupervisionEvent) -> None:
        decided = step(self._state, event, policy=self._plan.policy, now=time.monotonic())
        self._state = decided.state
        if decided.reason:
            wrong = self._state.exit_code != 0 or any(isinstance(action, Kill) for action in decided.actions)
            level = logging.WARNING if wrong or isinstance(event, Ended) else logging.INFO
            log.log(level, "supervisor.decided", extra={"reason": decided.reason, "mode": self._state.mode.value})
            self._notifier.status(decided.reason)
        for action in decided.actions:
            self._perform(action)

    def _perform(self, action: SupervisionAction) -> None:
        match action:
            case Spawn(name):
                self._spawn(name)
            case Kill(name) if name in self._processes:
                self._processes[name].kill()
            case Tell(name, order) if name in self._processes:
                if not self._processes[name].tell(order):
                    log.warning("supervisor.untold", extra={"child": str(name), "order": repr(order)})
            case Kill() | Tell():
                pass  # it has just ended; its Ended is on the way
            case CloseListeners(patience_s):
                self._close_by = time.monotonic() + patience_s
            case Announce(notice):
                self._notifier.announce(notice)
                log.info("supervisor.announced", extra={"notice": notice.value})
            case Exit(code):
                self._exit_code = code
            case _:
                assert_never(action)

    def _spawn(self, name: Name) -> None:
        command = self._plan.worker if name.role is Role.WORKER else self._plan.control
        try:
            process = spawn(
                name,
                command,
                slot_fds=self._listeners.slot_fds,
                operator_fds=self._listeners.operator_fds,
                environ=self._environ,
            )
        except OSError as error:
            log.error("supervisor.spawn_failed", extra={"child": str(name), "reason": str(error)})  # noqa: TRY400
            self._happened(Ended(name, _FAILED_SPAWN))
            return
        self._processes[name] = process
        self._selector.register(process.tether, selectors.EVENT_READ, partial(self._said, process))
        self._selector.register(process.pidfd, selectors.EVENT_READ, partial(self._process_ended, process))
        log.info("supervisor.started", extra={"child": str(name), "pid": process.pid})


@contextmanager
def _signals() -> Iterator[socket.socket]:
    """A socket that yields the number of each stop or reload signal while the block lasts."""

    def wake(_number: int, _frame: FrameType | None) -> None:
        """The number itself arrives through the wakeup descriptor."""

    arriving, written = socket.socketpair()
    with arriving, written:
        arriving.settimeout(0)
        written.settimeout(0)
        before = {number: signal.signal(number, wake) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
        fd_before = signal.set_wakeup_fd(written.fileno())
        try:
            yield arriving
        finally:
            signal.set_wakeup_fd(fd_before)
            for number, handler in before.items():
                signal.signal(number, handler)
