"""Changes to a stream that a request asked for or that the gateway owes it: usage removed, numbers added.

Station relay, before the write.  An edit names the byte strings without which a read cannot concern it
(``needles``), so an untouched read costs a search and nothing else; only a hit is taken apart.  Edits never look at
a delta, and give every event that they do not mean back byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Final, Protocol

import msgspec

from gateway.core.stream.chunk import UNREADABLE
from gateway.core.stream.pace import PaceReport

USAGE_NEEDLES: Final = (b'"choices":[]', b'"choices": []')
FINISH_NEEDLES: Final = (b'"finish_reason":"', b'"finish_reason": "')
DONE_NEEDLE: Final = b"[DONE]"
_BLANK: Final = re.compile(rb"(?:\n\n|\n\r\n|\r\r)[\r\n]*+")


class Edit(Protocol):
    """One way of changing a stream; ``needles`` empty: it never changes anything.

    While something is ``held``, every read concerns the edit.
    """

    @property
    def needles(self) -> tuple[bytes, ...]:
        """Byte strings of which at least one is in whatever concerns this edit; may get fewer by :meth:`begin`."""
        ...

    @property
    def held(self) -> bytes:
        """A whole event that waits for the next one."""
        ...

    def at_break(self) -> bytes:
        """The stream has broken off: whole events that go before the error; what was held, what was begun is ended."""
        ...

    def begin(self, first: bytes) -> None:
        """See the first whole events of the stream, before :meth:`apply`."""
        ...

    def apply(self, events: bytes, report: Callable[[], PaceReport]) -> bytes:
        """Whole events in, whole events out; ``report`` gives the numbers as of now."""
        ...


class Untouched:
    """Bytes as the engine sent them."""

    needles: tuple[bytes, ...] = ()
    held = b""

    def at_break(self) -> bytes:
        """Nothing was begun."""
        return b""

    def begin(self, first: bytes) -> None:
        """Nothing to remember."""

    def apply(self, events: bytes, report: Callable[[], PaceReport]) -> bytes:  # noqa: ARG002  (protocol)
        """Everything as it came."""
        return events


class UsageStripped:
    """Takes out the usage event that the gateway asked for on the client's behalf.

    vLLM puts ``system_fingerprint`` on the last event that it makes.  Without usage that is the one with the finish
    reason, so it waits for the usage event and gets the fingerprint back: the client sees what it would have seen.
    """

    def __init__(self) -> None:
        self.held = b""
        self.needles: tuple[bytes, ...] = (*USAGE_NEEDLES, *FINISH_NEEDLES)

    def begin(self, first: bytes) -> None:
        """See how this backend spaces its JSON: half the needles are then enough."""
        self.needles = _spaced(self.needles, first)

    def at_break(self) -> bytes:
        """The event that waits."""
        return self.held

    def apply(self, events: bytes, report: Callable[[], PaceReport]) -> bytes:  # noqa: ARG002  (protocol)
        """Everything but the usage event; a last event with a finish reason waits for what comes next."""
        out: list[bytes] = []
        held, self.held = self.held, b""
        usage = False
        for event in split_events(held + events):
            if is_usage(event):
                usage = True
                if out:
                    out[-1] = _with_fingerprint_of(event, out[-1])
            else:
                out.append(event)
        if out and not usage and _has_finish(out[-1]):
            self.held = out.pop()
        return b"".join(out)


class ReportInUsage:
    """Puts the numbers into the usage object of the usage event."""

    held = b""

    def __init__(self) -> None:
        self.needles: tuple[bytes, ...] = USAGE_NEEDLES

    def at_break(self) -> bytes:
        """Nothing was begun."""
        return b""

    def begin(self, first: bytes) -> None:
        """See how this backend spaces its JSON: half the needles are then enough."""
        self.needles = _spaced(self.needles, first)

    def apply(self, events: bytes, report: Callable[[], PaceReport]) -> bytes:
        """The usage event with ``usage.pacekeeper``, all else as it came."""
        once = cache(report)  # all of one read is of one instant
        return b"".join(_with_report(event, once()) if is_usage(event) else event for event in split_events(events))


class ReportAsEvent:
    """Adds one last event with the numbers before the end marker; ``first`` may take out the usage event."""

    def __init__(self, first: UsageStripped | Untouched) -> None:
        self._first = first
        self._head = _ChunkHead()

    @property
    def needles(self) -> tuple[bytes, ...]:
        """The first edit's, and the end marker."""
        return (*self._first.needles, DONE_NEEDLE)

    @property
    def held(self) -> bytes:
        """What the first edit holds."""
        return self._first.held

    def at_break(self) -> bytes:
        """What the first edit has."""
        return self._first.at_break()

    def begin(self, first: bytes) -> None:
        """Remember id, model and the like, so that the added event is a valid chunk of this stream."""
        self._first.begin(first)
        for event in split_events(first):
            try:
                self._head = _CHUNK_HEAD.decode(event_data(event))
            except UNREADABLE:
                continue
            return

    def apply(self, events: bytes, report: Callable[[], PaceReport]) -> bytes:
        """Everything, with the report before the end marker."""
        out: list[bytes] = []
        once = cache(report)  # all of one read is of one instant
        for event in split_events(self._first.apply(events, report)):
            if event_data(event) == DONE_NEEDLE:
                out.append(b"data: " + msgspec.json.encode(_ReportChunk.of(self._head, once())) + b"\n\n")
            out.append(event)
        return b"".join(out)


class _ChunkHead(msgspec.Struct, frozen=True):
    id: str = ""
    object: str = "chat.completion.chunk"
    created: int = 0
    model: str = ""


class _ReportChunk(msgspec.Struct, frozen=True):
    id: str
    object: str
    created: int
    model: str
    choices: tuple[()]
    pacekeeper: PaceReport

    @classmethod
    def of(cls, head: _ChunkHead, report: PaceReport) -> _ReportChunk:
        return cls(head.id, head.object, head.created, head.model, (), report)


class _UsageProbe(msgspec.Struct, frozen=True):
    choices: list[msgspec.Raw]
    usage: msgspec.Raw


def split_events(events: bytes) -> list[bytes]:
    """Cut whole events apart, each with its blank lines; the pieces join to the input.

    Looks at each byte once: a relay on the way that collects a stream makes one read of thousands of events.
    """
    pieces: list[bytes] = []
    start = 0
    for blank in _BLANK.finditer(events):
        end = blank.end()
        pieces.append(events[start:end])
        start = end
    if start < len(events):
        pieces.append(events[start:])
    return pieces


def event_data(event: bytes) -> bytes:
    """The joined ``data`` lines of one event, without their field name."""
    if event.startswith(b"data: ") and event.find(b"\n") == len(event) - 2:
        return event[6:-2]
    lines = event.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    return b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:"))


def is_usage(event: bytes) -> bool:
    """Whether this is a usage event: a ``usage`` object and ``choices`` that is empty."""
    if b'"usage"' not in event:
        return False
    try:
        probe = _USAGE_PROBE.decode(event_data(event))
    except UNREADABLE:
        return False
    return not probe.choices and bytes(probe.usage).startswith(b"{")


def _spaced(needles: tuple[bytes, ...], first: bytes) -> tuple[bytes, ...]:
    """Of ``needles`` those that are spaced as the first events are; all of them while that cannot be told."""
    spaced, compact = b'"choices": ' in first, b'"choices":[' in first
    return needles if spaced is compact else tuple(n for n in needles if (b": " in n) is spaced)


def _has_finish(event: bytes) -> bool:
    return any(needle in event for needle in FINISH_NEEDLES)


class _FingerprintProbe(msgspec.Struct, frozen=True):
    system_fingerprint: str


_CHUNK_HEAD: Final = msgspec.json.Decoder(_ChunkHead)
_USAGE_PROBE: Final = msgspec.json.Decoder(_UsageProbe)
_FINGERPRINT: Final = msgspec.json.Decoder(_FingerprintProbe)
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _with_fingerprint_of(usage_event: bytes, event: bytes) -> bytes:
    """``event`` with the fingerprint of ``usage_event``; as it is where either does not fit."""
    try:
        probe = _FINGERPRINT.decode(event_data(usage_event))
    except UNREADABLE:
        return event
    if not _has_finish(event) or not event.endswith(b"}\n\n"):
        return event
    return event[:-3] + b',"system_fingerprint":' + msgspec.json.encode(probe.system_fingerprint) + b"}\n\n"


def with_report_in_usage(body: bytes, report: PaceReport) -> bytes:
    """A JSON object with ``usage.pacekeeper`` added; unchanged when it has no usage object."""
    try:
        fields = _FIELDS.decode(body)
        usage = _FIELDS.decode(fields["usage"])
    except (*UNREADABLE, KeyError):
        return body
    usage["pacekeeper"] = msgspec.Raw(msgspec.json.encode(report))
    fields["usage"] = msgspec.Raw(msgspec.json.encode(usage))
    return msgspec.json.encode(fields)


def _with_report(event: bytes, report: PaceReport) -> bytes:
    return b"data: " + with_report_in_usage(event_data(event), report) + b"\n\n"
