"""The tether between the supervisor and each child: short text lines on a socket pair.

Child to supervisor: ``beat`` (every second), ``ready`` (accepting; control again after a reload), ``drained`` (all
streams ended).  Supervisor to child: ``adopt N`` and ``release N`` (accept on a dead sibling's slot), ``stop SECONDS``
(finish, and end what is left at the deadline), ``reload``.  The end of the stream means that the other side is gone.
Pure: text so that it can be read in a trace, and lines that are not known are skipped, since after an upgrade both
ends may be of different releases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, assert_never

MAX_LINE_BYTES: Final = 256
BEAT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Beat:
    """The child's loop runs."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The child does its work: a worker accepts, control answers; also said again when a reload is through."""


@dataclass(frozen=True, slots=True)
class Drained:
    """The child has nothing left and is about to end."""


@dataclass(frozen=True, slots=True)
class Adopt:
    """Accept on the listeners of ``slot`` as well."""

    slot: int


@dataclass(frozen=True, slots=True)
class Release:
    """Accept on the listeners of ``slot`` no longer; connections that were accepted stay."""

    slot: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Accept no more and end; what is open may take ``deadline_s`` seconds."""

    deadline_s: float


@dataclass(frozen=True, slots=True)
class Reload:
    """Read the configuration again."""


Word = Beat | Ready | Drained
"""What a child says."""

Order = Adopt | Release | Stop | Reload
"""What the supervisor says."""

_MAX_SLOT_DIGITS: Final = 4


def line(said: Word | Order) -> bytes:
    """``said`` as a line with its newline."""
    match said:
        case Beat():
            text = "beat"
        case Ready():
            text = "ready"
        case Drained():
            text = "drained"
        case Adopt(slot):
            text = f"adopt {slot}"
        case Release(slot):
            text = f"release {slot}"
        case Stop(deadline_s):
            text = f"stop {deadline_s:.3f}"
        case Reload():
            text = "reload"
        case _:
            assert_never(said)
    return f"{text}\n".encode()


class Lines:
    """Bytes of a tether -> what was said.  Owns the bytes of the unfinished line, at most MAX_LINE_BYTES of them."""

    def __init__(self) -> None:
        self._pending = b""
        self._skipping = False

    def feed(self, data: bytes) -> list[Word | Order]:
        """What is complete after ``data``, in order; unknown and overlong lines are left out."""
        *whole, rest = (self._pending + data).split(b"\n")
        said: list[Word | Order] = []
        for text in whole:
            if not self._skipping and len(text) <= MAX_LINE_BYTES and (word := _parse(text)) is not None:
                said.append(word)
            self._skipping = False
        if len(rest) > MAX_LINE_BYTES:
            self._skipping = True
        self._pending = b"" if self._skipping else rest
        return said


def _parse(text: bytes) -> Word | Order | None:
    match text.decode("ascii", "replace").split(" "):
        case ["beat"]:
            return Beat()
        case ["ready"]:
            return Ready()
        case ["drained"]:
            return Drained()
        case ["reload"]:
            return Reload()
        case [name, number]:
            return _parse_numbered(name, number)
        case _:
            return None


def _parse_numbered(name: str, number: str) -> Order | None:
    if name == "stop":
        deadline_s = _seconds(number)
        return None if deadline_s is None else Stop(deadline_s)
    if not number.isdecimal() or len(number) > _MAX_SLOT_DIGITS:
        return None
    match name:
        case "adopt":
            return Adopt(int(number))
        case "release":
            return Release(int(number))
        case _:
            return None


def _seconds(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
