"""The catalogue of log events: every name, when it is told, and every field with its meaning.

One event a decision, one wide event a request.  The log, the live feed and ``docs/events.md`` are made from this
table; a test holds every call of :class:`gateway.telemetry.eventlog.EventLog` against it.  Names are
``subject.happening``; fields carry their units.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gateway.core.routing.backend import BackendState
from gateway.telemetry.eventspec import EventName, EventSpec, Level
from gateway.telemetry.process_events import PROCESS_EVENTS
from gateway.telemetry.settled import SETTLED_FIELDS

__all__ = ["EVENTS", "EventName", "EventSpec", "Level"]

_TROUBLES: Final = (BackendState.EJECTED, BackendState.FAILED, BackendState.WEDGED)
"""States that somebody has to look at; every other one is the course of things, a return included."""

_BACKEND: Final = {"backend": "name of the backend"}
_POOL: Final = {"pool": "name of the pool"}
_ADAPTER: Final = {**_BACKEND, **_POOL, "adapter": "name of the adapter"}
_PATH: Final = {"path": "the file"}
_WORKER: Final = {"slot": "number of the worker's slot", "pid": "its process"}

EVENTS: Final[Mapping[EventName, EventSpec]] = MappingProxyType(
    {
        EventName.REQUEST_SETTLED: EventSpec(
            level=Level.INFO,
            when="A request has ended, however it ended; one line each, the widest one. What is not known is left out.",
            fields=SETTLED_FIELDS,
        ),
        EventName.BACKEND_STATE: EventSpec(
            level=Level.INFO,
            graver={("state", state.value): Level.WARNING for state in _TROUBLES},
            when="A backend is in another state.",
            fields={
                **_BACKEND,
                **_POOL,
                "state": "the new state",
                "was": "the state before",
                "reason": "one sentence: what was seen that led to it",
            },
        ),
        EventName.BACKEND_MODELS: EventSpec(
            level=Level.INFO,
            when="A backend reports other models than before.",
            fields={
                **_BACKEND,
                "models": "ids that it reports now",
                "version": "version of its engine, where it tells",
            },
        ),
        EventName.BACKEND_READING: EventSpec(
            level=Level.WARNING,
            when="`/v1/models` or `/metrics` of a serving backend cannot be read, or can be again.",
            fields={**_BACKEND, "path": "what was asked for", "problem": 'what came instead; "" when it is well again'},
        ),
        EventName.BACKEND_RESTARTED: EventSpec(
            level=Level.WARNING,
            when="The engine's token counter fell: another process answers at the same address.",
            fields={**_BACKEND, "tokens_before": "the counter's last reading", "tokens_now": "its reading now"},
        ),
        EventName.BACKEND_KEPT: EventSpec(
            level=Level.WARNING,
            when="So many requests of a backend fail that it would be ejected, but no more of its pool may be.",
            fields={**_BACKEND, **_POOL, "reason": "one sentence: what was seen"},
        ),
        EventName.REQUEST_QUARANTINED: EventSpec(
            level=Level.WARNING,
            when="Several backends died with the same request in flight; it is refused from now on (`poison`).",
            fields={
                "fingerprint": "of the request's body: 16 hexadecimal digits",
                "backends": "which died, one for each death",
                "for_s": "for how long it is refused",
            },
        ),
        EventName.REQUEST_RELEASED: EventSpec(
            level=Level.INFO,
            when="A request that was quarantined is served again.",
            fields={"fingerprint": "of the request's body", "reason": "why"},
        ),
        EventName.ADAPTER_LOADED: EventSpec(
            level=Level.INFO,
            when="A backend has loaded a LoRA adapter: an operator asked for it, or it lacked one that is wanted.",
            fields={**_ADAPTER, "result": "loaded, or reloaded where it had one of that name"},
        ),
        EventName.ADAPTER_UNLOADED: EventSpec(
            level=Level.INFO,
            when="A backend has let go of a LoRA adapter, as an operator asked.",
            fields={**_ADAPTER, "result": "unloaded"},
        ),
        EventName.ADAPTER_FAILED: EventSpec(
            level=Level.WARNING,
            when="A backend did not load a LoRA adapter, or did not let go of one; it is asked again. Once per reason.",
            fields={
                **_ADAPTER,
                "wanted": "whether it was to be loaded",
                "reason": "what the backend said, or why it could not be asked",
            },
        ),
        EventName.POOL_DOWN: EventSpec(
            level=Level.ERROR,
            when="No backend of a pool serves any more; its requests get 503.",
            fields={**_POOL, "reason": "one sentence with the reason of each backend"},
        ),
        EventName.POOL_SERVING: EventSpec(
            level=Level.WARNING,
            when="A pool without a serving backend has one again.",
            fields={**_POOL, "after_s": "how long it had none"},
        ),
        EventName.POOL_MODELS_MISSING: EventSpec(
            level=Level.WARNING,
            when="A pool names models that none of its backends reports; requests for them get 503. A wrong name, mostly.",
            fields={**_POOL, "missing": "those models", "reported": "what its backends report, the first few"},
        ),
        EventName.POOL_MODELS_COMPLETE: EventSpec(
            level=Level.INFO,
            when="Every model that a pool names is reported by one of its backends again.",
            fields=_POOL,
        ),
        EventName.SNAPSHOT_PUBLISHED: EventSpec(
            level=Level.DEBUG,
            when="The workers were sent a new picture of the fleet.",
            fields={
                "generation": "number of the snapshot",
                "workers": "how many were sent it",
                "serving": "backends that serve",
            },
            live=False,
        ),
        EventName.WORKER_JOINED: EventSpec(level=Level.INFO, when="A worker has connected to control.", fields=_WORKER),
        EventName.WORKER_GONE: EventSpec(
            level=Level.WARNING,
            when="A worker's connection to control has closed: it ended, or was replaced.",
            fields={**_WORKER, "in_flight": "requests it last said it held"},
        ),
        EventName.WORKER_SILENT: EventSpec(
            level=Level.WARNING,
            when="A connected worker has sent no heartbeat for too long.",
            fields={**_WORKER, "silent_s": "since its last heartbeat"},
        ),
        EventName.RECORDS_DROPPED: EventSpec(
            level=Level.WARNING,
            when="A worker had to drop records of settled requests since control was slow or away; counters stay exact.",
            fields={**_WORKER, "count": "records lost since the last heartbeat"},
        ),
        EventName.CONFIG_LOADED: EventSpec(
            level=Level.INFO,
            when="A reload has read the configuration again and applied it. A start's file is named by `control.started`.",
            fields={
                "config_path": "the file",
                "changes": "what changed, in sentences",
                "needs_restart": "changed settings that only a restart applies",
            },
        ),
        EventName.CONFIG_REFUSED: EventSpec(
            level=Level.ERROR,
            when="A reload found faults; the configuration in use stays.",
            fields={"config_path": "the file", "faults": "one line for each, with its place"},
        ),
        EventName.KEYS_LOADED: EventSpec(
            level=Level.INFO,
            when="The clients' keys are others than before, or their file is well again.",
            fields={
                "keys": "how many there are, revoked and expired ones among them",
                "changes": "which were added, changed, revoked or removed, by their ids",
            },
        ),
        EventName.KEYS_REFUSED: EventSpec(
            level=Level.ERROR,
            when="The file of the clients' keys cannot be used; the keys in use stay. Once per trouble.",
            fields={**_PATH, "faults": "one line for each, with its place", "kept": "keys that stay in use"},
        ),
        EventName.OPERATOR_CHANGE: EventSpec(
            level=Level.WARNING,
            when="An operator changed something, or tried to.",
            fields={
                "at_wall": "when, in seconds since 1970",
                "actor": "name of the token, never the token",
                "scope": "what the token allows",
                "peer": "address that it came from",
                "action": "what was asked for",
                "result": "applied, refused or failed",
                "details": "the changes, or the faults, in sentences",
            },
        ),
        EventName.HISTORY_MOVED_ASIDE: EventSpec(
            level=Level.ERROR,
            when="The history's file was damaged; it was moved aside whole and a new one started.",
            fields={**_PATH, "moved_to": "where the damaged file lies now", "reason": "what was wrong with it"},
        ),
        EventName.HISTORY_FILE_GONE: EventSpec(
            level=Level.WARNING,
            when="Somebody removed or replaced the history's file; the history goes on with a new one.",
            fields=_PATH,
        ),
        EventName.HISTORY_MIGRATED: EventSpec(
            level=Level.WARNING,
            when="The history's file came from an older release and was brought up to date.",
            fields={**_PATH, "before": "version of its schema before", "after": "version now"},
        ),
        EventName.HISTORY_TROUBLED: EventSpec(
            level=Level.ERROR,
            when="The history cannot be written; rows wait in memory, then are dropped. Once per trouble.",
            fields={**_PATH, "problem": "one sentence"},
        ),
        EventName.HISTORY_RECOVERED: EventSpec(
            level=Level.WARNING,
            when="The history can be written again.",
            fields={**_PATH, "lasted_s": "how long it could not", "dropped": "rows lost since the start"},
        ),
        EventName.HISTORY_ROWS_DROPPED: EventSpec(
            level=Level.WARNING,
            when="Rows were lost: too many waited, or they could not be expressed.",
            fields={**_PATH, "count": "how many more", "refused": "whether they could not be expressed"},
        ),
        EventName.HISTORY_ROW_UNREADABLE: EventSpec(
            level=Level.WARNING,
            when="A row that this release cannot read was left out of an answer.",
            fields={**_PATH, "id": "of the row", "reason": "why"},
        ),
        EventName.KEEPSAKE_PROBLEM: EventSpec(
            level=Level.WARNING,
            when="What control leaves to its next life cannot be written, or can be again.",
            fields={"problem": 'one sentence; "" when it is well again'},
        ),
        EventName.CONTROL_STARTED: EventSpec(
            level=Level.INFO,
            when="The control process is up: operators are served, backends are being probed.",
            fields={
                "version": "of the gateway",
                "pid": "of control",
                "config_path": "the file",
                "backends": "how many are configured",
                "first_round_s": "how long the first look at all backends took",
            },
        ),
        EventName.CONTROL_STOPPED: EventSpec(level=Level.INFO, when="The control process ends in order."),
        **PROCESS_EVENTS,
    }
)
