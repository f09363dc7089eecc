"""The numbers inside the usage of streams whose events have types: Responses and Messages.

Station relay, before the write: an edit like those of :mod:`gateway.core.stream.edit`.  The usage stands in one late
event, which is found by its name; every other event passes byte for byte.  Must not add events: clients of these APIs
know a closed set of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from gateway.core.stream.chunk import UNREADABLE
from gateway.core.stream.edit import Edit, ReportInUsage, event_data, split_events, with_report_in_usage
from gateway.core.stream.pace import PaceReport
from gateway.core.stream.summary import Dialect

_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class ReportInTypedUsage:
    """Puts the numbers into the usage of the event that has it: its own, or that of the object in field ``inside``."""

    held = b""

    def __init__(self, *names: bytes, inside: str = "") -> None:
        self.needles: tuple[bytes, ...] = tuple(b"event: %b\n" % name for name in names)
        self._inside = inside

    def at_break(self) -> bytes:
        """Nothing was begun."""
        return b""

    def begin(self, first: bytes) -> None:
        """Nothing to remember."""

    def apply(self, events: bytes, report: Callable[[], PaceReport]) -> bytes:
        """The events with ``usage.pacekeeper`` in the one that is meant, all else as it came."""
        return b"".join(
            self._with_report(event, report) if event.startswith(self.needles) else event
            for event in split_events(events)
        )

    def _with_report(self, event: bytes, report: Callable[[], PaceReport]) -> bytes:
        name, _, _ = event.partition(b"\n")
        data = event_data(event)
        if not self._inside:
            return b"%b\ndata: %b\n\n" % (name, with_report_in_usage(data, report()))
        try:
            fields = _FIELDS.decode(data)
            fields[self._inside] = msgspec.Raw(with_report_in_usage(bytes(fields[self._inside]), report()))
        except (*UNREADABLE, KeyError):
            return event
        return b"%b\ndata: %b\n\n" % (name, msgspec.json.encode(fields))


def report_in_usage(dialect: Dialect) -> Edit:
    """The edit that puts the numbers into the usage of a stream of ``dialect``."""
    match dialect:
        case Dialect.RESPONSES:
            return ReportInTypedUsage(b"response.completed", b"response.incomplete", inside="response")
        case Dialect.MESSAGES:
            return ReportInTypedUsage(b"message_delta")
        case _:
            return ReportInUsage()
