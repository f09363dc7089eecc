"""What an event is: its name, how urgent it is, and what the catalogue says about each.

The catalogue itself is :mod:`events`, with :mod:`process_events` for what supervisor and workers tell.  Names are
``subject.happening`` and stable: alerts and scripts match them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Level(StrEnum):
    """How urgent an event is, the least first."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class EventName(StrEnum):
    """Every event that any of the processes tells."""

    REQUEST_SETTLED = "request.settled"
    REQUEST_QUARANTINED = "request.quarantined"
    REQUEST_RELEASED = "request.released"
    BACKEND_STATE = "backend.state"
    BACKEND_MODELS = "backend.models"
    BACKEND_READING = "backend.reading"
    BACKEND_RESTARTED = "backend.restarted"
    BACKEND_KEPT = "backend.kept"
    ADAPTER_LOADED = "adapter.loaded"
    ADAPTER_UNLOADED = "adapter.unloaded"
    ADAPTER_FAILED = "adapter.failed"
    POOL_DOWN = "pool.down"
    POOL_SERVING = "pool.serving"
    POOL_MODELS_MISSING = "pool.models_missing"
    POOL_MODELS_COMPLETE = "pool.models_complete"
    SNAPSHOT_PUBLISHED = "snapshot.published"
    WORKER_JOINED = "worker.joined"
    WORKER_GONE = "worker.gone"
    WORKER_SILENT = "worker.silent"
    RECORDS_DROPPED = "records.dropped"
    CONFIG_LOADED = "config.loaded"
    CONFIG_REFUSED = "config.refused"
    KEYS_LOADED = "keys.loaded"
    KEYS_REFUSED = "keys.refused"
    OPERATOR_CHANGE = "operator.change"
    HISTORY_MOVED_ASIDE = "history.moved_aside"
    HISTORY_FILE_GONE = "history.file_gone"
    HISTORY_MIGRATED = "history.migrated"
    HISTORY_TROUBLED = "history.troubled"
    HISTORY_RECOVERED = "history.recovered"
    HISTORY_ROWS_DROPPED = "history.rows_dropped"
    HISTORY_ROW_UNREADABLE = "history.row_unreadable"
    KEEPSAKE_PROBLEM = "keepsake.problem"
    CONTROL_STARTED = "control.started"
    CONTROL_STOPPED = "control.stopped"
    CERTIFICATE_RENEWED = "certificate.renewed"
    CERTIFICATE_REFUSED = "certificate.refused"
    TASK_FAILED = "task.failed"
    LOG_DROPPED = "log.dropped"
    LIBRARY_MESSAGE = "library.message"
    REQUEST_DEFECT = "request.defect"
    REQUEST_UNMEASURED = "request.unmeasured"
    CALLBACK_FAILED = "callback.failed"
    SUPERVISOR_LISTENING = "supervisor.listening"
    SUPERVISOR_STARTED = "supervisor.started"
    SUPERVISOR_DECIDED = "supervisor.decided"
    SUPERVISOR_ANNOUNCED = "supervisor.announced"
    SUPERVISOR_UNTOLD = "supervisor.untold"
    SUPERVISOR_SPAWN_FAILED = "supervisor.spawn_failed"
    SUPERVISOR_ENDED = "supervisor.ended"
    TETHER_BROKEN = "tether.broken"
    LINK_LOST = "link.lost"
    LINK_BATCH_UNSENDABLE = "link.batch_unsendable"
    LINK_CLOSE_TIMEOUT = "link.close_timeout"
    LINK_CONNECT_FAILED = "link.connect_failed"
    LINK_CLOSE_FAILED = "link.close_failed"
    LINK_REFUSED = "link.refused"
    LINK_CUT_OFF = "link.cut_off"
    LINK_RESET = "link.reset"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSpec:
    """When an event is told, its fields, and whether the live feed carries it.

    ``graver``: (field, its value) -> the level that the event has then instead of ``level``.
    """

    level: Level
    when: str
    fields: Mapping[str, str] = field(default_factory=dict)
    live: bool = True
    graver: Mapping[tuple[str, str], Level] = field(default_factory=dict)

    def level_of(self, fields: Mapping[str, object]) -> Level:
        """How urgent the event is with these fields."""
        for (name, value), level in self.graver.items():
            if fields.get(name) == value:
                return level
        return self.level
