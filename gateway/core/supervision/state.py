"""Values of supervision: children and their phases, what may happen, what may be done about it.

A worker *slot* outlives the processes that fill it, and so does the one control.  Instants are seconds of one monotonic
clock.  Holds no process ids: a name means whichever process fills it now.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gateway.core.step import Step
from gateway.core.tether import Order, Word


class Role(StrEnum):
    """Kinds of children."""

    WORKER = "worker"
    CONTROL = "control"


@dataclass(frozen=True, slots=True)
class Name:
    """Which child: control, or the worker of a slot."""

    role: Role
    slot: int = 0

    def __str__(self) -> str:
        return self.role.value if self.role is Role.CONTROL else f"{self.role.value} {self.slot}"


CONTROL: Final = Name(Role.CONTROL)


class Phase(StrEnum):
    """Where a child is in its life."""

    WAITING = "waiting"  # no process; one is due
    STARTING = "starting"
    READY = "ready"
    DYING = "dying"  # killed; its end has not been seen yet
    GONE = "gone"  # no process, and none will be started


class Mode(StrEnum):
    """How far the whole has come; it only moves down this list."""

    RUNNING = "running"
    CLOSING = "closing"  # accept queues run empty, then the listeners close
    DRAINING = "draining"  # workers finish their streams
    ENDING = "ending"  # control writes down what is left
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """One slot of the supervision.

    ``due`` is when a waiting one starts; ``heard_at`` its last beat or its start; ``ready_at`` since when it has been
    ready; ``crashes`` those in a row; ``down_since`` since when nobody was ready in the slot; ``keeper`` the slot
    whose worker accepts here meanwhile; ``kill_at`` ends the patience of a stop.
    """

    name: Name
    phase: Phase = Phase.WAITING
    due: float = 0.0
    heard_at: float = 0.0
    ready_at: float = 0.0
    ever_ready: bool = False
    crashes: int = 0
    down_since: float | None = None
    keeper: int | None = None
    kill_at: float | None = None

    @property
    def lives(self) -> bool:
        """Whether a process is there that can be told something."""
        return self.phase in {Phase.STARTING, Phase.READY}


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervision:
    """The whole state.

    ``announced``: the service manager was told READY; ``reloading``: control has not said yet that a reload is
    through; ``hurried``: the stop waits for nobody; ``exit_code`` is what the stop ends with; ``ticked_at``: the last
    Tick.
    """

    children: tuple[Child, ...]
    mode: Mode = Mode.RUNNING
    announced: bool = False
    reloading: bool = False
    hurried: bool = False
    exit_code: int = 0
    ticked_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisionPolicy:
    """Every limit of supervision, in seconds.

    A child silent for ``silent_s`` is killed (``start_s`` until its first beat: imports on a busy machine take long).
    ``stable_s`` of readiness end a row of crashes; ``max_crashes`` in a row are the end.  The first restart is at
    once, the second after ``pause_first_s``, then doubling up to ``pause_max_s``, or ``pause_alone_max_s`` where no
    sibling can accept meanwhile.  ``grace_s`` comes on top of a stop's own deadline before the child is killed;
    ``hurry_s`` is that grace when the stop waits for nobody.  ``stall_s`` without a Tick means that the supervisor
    itself stood still, so silence proves nothing.
    """

    silent_s: float = 10.0
    start_s: float = 30.0
    stall_s: float = 5.0
    adopt_after_s: float = 2.0
    stable_s: float = 5.0
    max_crashes: int = 5
    pause_first_s: float = 0.2
    pause_max_s: float = 10.0
    pause_alone_max_s: float = 1.0
    queues_s: float = 0.5
    drain_s: float = 30.0
    control_stop_s: float = 3.0
    grace_s: float = 5.0
    hurry_s: float = 3.0


# --- what may happen ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A child said something on its tether."""

    name: Name
    word: Word


@dataclass(frozen=True, slots=True)
class Ended:
    """A child's process is over: ``code`` is its exit status, or the negative number of the signal that ended it."""

    name: Name
    code: int


@dataclass(frozen=True, slots=True)
class StopAsked:
    """SIGTERM or SIGINT."""


@dataclass(frozen=True, slots=True)
class ReloadAsked:
    """SIGHUP."""


@dataclass(frozen=True, slots=True)
class ListenersClosed:
    """The accept queues ran empty, or the patience for it did, and new connections are refused."""


SupervisionEvent = Tick | Heard | Ended | StopAsked | ReloadAsked | ListenersClosed


# --- what may be done ---------------------------------------------------------------------------------------------


class Notice(StrEnum):
    """What the service manager is told."""

    READY = "ready"
    RELOADING = "reloading"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start a process for ``name``."""

    name: Name


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL the process of ``name``."""

    name: Name


@dataclass(frozen=True, slots=True)
class Tell:
    """Say ``order`` on the tether of ``name``."""

    name: Name
    order: Order


@dataclass(frozen=True, slots=True)
class CloseListeners:
    """Let the accept queues run empty for at most ``patience_s``, then refuse; ListenersClosed is the answer."""

    patience_s: float


@dataclass(frozen=True, slots=True)
class Announce:
    """Tell the service manager."""

    notice: Notice


@dataclass(frozen=True, slots=True)
class Exit:
    """Everything is over."""

    code: int


SupervisionAction = Spawn | Kill | Tell | CloseListeners | Announce | Exit
SupervisionStep = Step[Supervision, SupervisionAction]


def begin(*, workers: int, now: float) -> Supervision:
    """Nothing runs yet; everything is due."""
    names = (CONTROL, *(Name(Role.WORKER, slot) for slot in range(workers)))
    return Supervision(
        children=tuple(
            Child(name=name, due=now, heard_at=now, down_since=now if name.role is Role.WORKER else None)
            for name in names
        ),
        ticked_at=now,
    )
