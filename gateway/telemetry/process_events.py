"""The catalogue's part for what is told through the standard library's log: by the supervisor, by workers, by all.

Supervisor and workers have no live feed; what control tells of these goes to its own log alone, except a failed task.
A call gives the event's name as message and its fields as ``extra``; a test holds every such call against this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gateway.telemetry.eventspec import EventName, EventSpec, Level

_DEFECT: Final = {"error": "type of the exception", "place": "file and line, outermost first; never its message"}
_CHILD: Final = {"child": "control, or worker and its slot"}
_REASON: Final = {"reason": "one sentence"}
_RECORDS: Final = {"records": "settled requests that control will not hear of; counters stay exact"}

PROCESS_EVENTS: Final[Mapping[EventName, EventSpec]] = MappingProxyType(
    {
        EventName.TASK_FAILED: EventSpec(
            level=Level.ERROR,
            when="A defect of ours: a background task ended with an error. It is started again where it can be.",
            fields={"task": "its name", **_DEFECT},
        ),
        EventName.CERTIFICATE_RENEWED: EventSpec(
            level=Level.INFO,
            when="The files of clients.tls have changed; new connections get what is in them now.",
            fields={"path": "of the certificate"},
            live=False,
        ),
        EventName.CERTIFICATE_REFUSED: EventSpec(
            level=Level.WARNING,
            when="The files of clients.tls have changed and cannot be used; the old pair stays in force.",
            fields={"path": "of the certificate", **_REASON},
            live=False,
        ),
        EventName.REQUEST_DEFECT: EventSpec(
            level=Level.ERROR,
            when="A defect of ours met a request, whose client got a 500 or a connection that ended early.",
            fields={"request_id": "`X-Request-Id` of the answer, where one was made", **_DEFECT},
            live=False,
        ),
        EventName.REQUEST_UNMEASURED: EventSpec(
            level=Level.ERROR,
            when="A defect of ours: what was seen of an answer could not be summed up. The answer itself was not touched.",
            fields={"request_id": "`X-Request-Id` of the answer", **_DEFECT},
            live=False,
        ),
        EventName.CALLBACK_FAILED: EventSpec(
            level=Level.ERROR,
            when="The event loop met an error that nobody awaited: a defect of ours, or a connection that broke oddly.",
            fields={"what": "the loop's words, up to where it would quote values", **_DEFECT},
            live=False,
        ),
        EventName.LOG_DROPPED: EventSpec(
            level=Level.WARNING,
            when="Log lines were lost because nobody read our standard error fast enough.",
            fields={"count": "how many"},
            live=False,
        ),
        EventName.LIBRARY_MESSAGE: EventSpec(
            level=Level.WARNING,
            when="A library had something to say.",
            fields={
                "logger": "which one",
                "message": "the first line of its words, shortened",
                "severity": "in its own words",
                "details": "what else it said, as an object",
            },
            live=False,
        ),
        EventName.SUPERVISOR_LISTENING: EventSpec(
            level=Level.INFO,
            when="The listening sockets are open; the children are started next.",
            fields={
                "pid": "of the supervisor: the one to send signals to",
                "clients": "addresses for clients, with the ports that were taken",
                "operators": "addresses for operators",
                "workers": "how many workers there will be",
            },
            live=False,
        ),
        EventName.SUPERVISOR_STARTED: EventSpec(
            level=Level.INFO,
            when="A child process was started.",
            fields={**_CHILD, "pid": "its process"},
            live=False,
        ),
        EventName.SUPERVISOR_DECIDED: EventSpec(
            level=Level.INFO,
            when="The supervisor decided something; a warning when a child ended or had to be killed.",
            fields={**_REASON, "mode": "running, closing, draining, ending or ended"},
            live=False,
        ),
        EventName.SUPERVISOR_ANNOUNCED: EventSpec(
            level=Level.INFO,
            when="The gateway is ready, reloads or stops; a service manager is told the same.",
            fields={"notice": "ready, reloading or stopping"},
            live=False,
        ),
        EventName.SUPERVISOR_UNTOLD: EventSpec(
            level=Level.WARNING,
            when="An order did not reach a child, which ended or has long not read; its silence gives it away.",
            fields={**_CHILD, "order": "what it was to do"},
            live=False,
        ),
        EventName.SUPERVISOR_SPAWN_FAILED: EventSpec(
            level=Level.ERROR,
            when="The system would not start a child process. It is tried again, like one that crashed.",
            fields={**_CHILD, **_REASON},
            live=False,
        ),
        EventName.SUPERVISOR_ENDED: EventSpec(
            level=Level.INFO,
            when="The gateway ends; every child has ended before.",
            fields={"status": "exit code"},
            live=False,
        ),
        EventName.TETHER_BROKEN: EventSpec(
            level=Level.DEBUG,
            when="A child lost its supervisor by an error of the socket; it ends.",
            fields=_REASON,
            live=False,
        ),
        EventName.LINK_LOST: EventSpec(
            level=Level.WARNING,
            when="A worker's connection to control has ended. It serves on and connects anew.",
            fields=_REASON,
            live=False,
        ),
        EventName.LINK_CONNECT_FAILED: EventSpec(
            level=Level.DEBUG,
            when="A worker could not connect to control, which may still be starting. It tries on.",
            fields=_REASON,
            live=False,
        ),
        EventName.LINK_BATCH_UNSENDABLE: EventSpec(
            level=Level.WARNING,
            when="A batch of records was over the bound of a message, and was dropped.",
            fields={**_REASON, **_RECORDS},
            live=False,
        ),
        EventName.LINK_CLOSE_TIMEOUT: EventSpec(
            level=Level.WARNING,
            when="A worker that ends could not tell control everything in time.",
            fields=_RECORDS,
            live=False,
        ),
        EventName.LINK_CLOSE_FAILED: EventSpec(
            level=Level.DEBUG,
            when="The last bytes of a worker's connection to control did not arrive.",
            fields=_REASON,
            live=False,
        ),
        EventName.LINK_REFUSED: EventSpec(
            level=Level.WARNING,
            when="Control refused a worker: another release, no hello, or bytes that are no message.",
            fields=_REASON,
            live=False,
        ),
        EventName.LINK_CUT_OFF: EventSpec(
            level=Level.WARNING,
            when="A worker did not read what control sent; its connection was cut, and it connects anew.",
            fields={"slot": "number of the worker's slot", "unsent_bytes": "what waited for it"},
            live=False,
        ),
        EventName.LINK_RESET: EventSpec(
            level=Level.DEBUG,
            when="A worker's connection broke by an error of the socket.",
            fields=_REASON,
            live=False,
        ),
    }
)
