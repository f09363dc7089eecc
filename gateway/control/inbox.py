"""What reaches the control loop, and what it answers with: events in, actions out, both plain values.

Made by the link, the watches, the admin API and timers; stepped by :class:`gateway.control.state.ControlState`;
performed by the loop.  Must not do anything itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.control.link import WorkerRef
from gateway.core.admission.keys import Key
from gateway.core.link.messages import ControlMessage, RequestRecord, WorkerMessage
from gateway.core.routing.adapters import Orders
from gateway.core.routing.evidence import HealthEvent
from gateway.core.routing.reading import EngineReading
from gateway.core.routing.snapshot import ModelCard, Snapshot
from gateway.settings import Backend, Runtime
from gateway.telemetry.events import EventName

# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HealthNews:
    """A probe of a backend ended, or an operator said something about it."""

    backend: str
    event: HealthEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsRead:
    """A backend reports ``cards``; ``version`` of its engine, "" where it does not tell."""

    backend: str
    cards: tuple[ModelCard, ...]
    version: str


@dataclass(frozen=True, slots=True)
class NumbersRead:
    """An engine's numbers."""

    backend: str
    reading: EngineReading


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """Models or numbers could not be read: ``result`` for counting, ``detail`` for people."""

    backend: str
    path: str
    result: str
    detail: str


@dataclass(frozen=True, slots=True)
class WorkerSaid:
    """A worker's message."""

    worker: WorkerRef
    message: WorkerMessage


@dataclass(frozen=True, slots=True)
class WorkerLeft:
    """A worker's connection closed."""

    worker: WorkerRef


@dataclass(frozen=True, slots=True)
class ConfigRead:
    """Another configuration is to be applied."""

    runtime: Runtime


@dataclass(frozen=True, slots=True)
class QuarantineLifted:
    """An operator lets requests with a fingerprint in again."""

    fingerprint: str


@dataclass(frozen=True, slots=True)
class AdaptersOrdered:
    """Operators want these LoRA adapters, and those not."""

    orders: Orders


@dataclass(frozen=True, slots=True)
class KeysRead:
    """The clients' keys are these now."""

    keys: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class KeysBad:
    """The file of keys cannot be used; those in use stay.  ``faults``: one line each."""

    path: str
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RoundOver:
    """The time for a first look at all backends is over."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time for shares and for looking after silent workers."""


Event = (
    HealthNews
    | ModelsRead
    | NumbersRead
    | Unreadable
    | WorkerSaid
    | WorkerLeft
    | ConfigRead
    | QuarantineLifted
    | AdaptersOrdered
    | KeysRead
    | KeysBad
    | RoundOver
    | Ticked
)

# --- actions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Publish:
    """Send a new snapshot to every worker."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class PublishKeys:
    """Send other keys to every worker."""

    keys: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class SendTo:
    """Send a message to one worker."""

    worker: WorkerRef
    message: ControlMessage


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Send a message to every worker."""

    message: ControlMessage


@dataclass(frozen=True, slots=True)
class Watch:
    """Watch exactly these backends, each probe bounded by ``timeout_s``."""

    backends: Mapping[str, Backend]
    timeout_s: float


@dataclass(frozen=True, slots=True)
class ProbeNow:
    """Ask a backend for its health at once."""

    backend: str


@dataclass(frozen=True, slots=True)
class ReadModels:
    """Read a backend's models at once."""

    backend: str


@dataclass(frozen=True, slots=True)
class Ingest:
    """Store, count and tell settled requests."""

    records: tuple[RequestRecord, ...]


@dataclass(frozen=True, slots=True)
class CountProbe:
    """Count a probe by what came of it."""

    backend: str
    path: str
    result: str


@dataclass(frozen=True, slots=True)
class CountState:
    """Count a backend's entering of a state."""

    backend: str
    state: str


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell an event."""

    name: EventName
    fields: Mapping[str, object] = field(default_factory=dict)


Action = (
    Publish | PublishKeys | SendTo | Broadcast | Watch | ProbeNow | ReadModels | Ingest | CountProbe | CountState | Tell
)
