"""Faults of a configuration: where, which key, what is wrong, and how they read on a terminal at night.

Not a station.  Pure: turns places and paths into lines of text and finds the name that somebody probably meant.  It
never shows a value, since a value may be a key or a password that stands in the wrong place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from gateway.errors import ConfigError

Path = tuple[str | int, ...]
"""Where a value stands in the document: keys and list positions from the root."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing to put right.

    ``source`` is a file as the operator named it, or ``environment NAME``; ``line`` and ``column`` count from 1, and 0
    means that there is none.  ``str()`` is the line that people see.
    """

    source: str
    path: Path
    message: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}:{self.column}" if self.line else self.source
        return f"{place} {spell(self.path)}: {self.message}" if self.path else f"{place}: {self.message}"


def spell(path: Path) -> str:
    """``("pools", 0, "name")`` as ``pools[0].name``; a key that is not plain text is quoted."""
    text = ""
    for part in path:
        match part:
            case int():
                text += f"[{part}]"
            case str():
                plain = part.isprintable() and part and not set(part) & set(" .:[]\"'")
                text += ("." if text else "") + (part if plain else ascii(part))
    return text


def nearest(key: str, known: Sequence[str]) -> str | None:
    """The one of ``known`` that somebody probably meant by ``key``."""
    folded = {name.lower(): name for name in known}
    near = get_close_matches(key.lower().replace("-", "_"), folded, n=1, cutoff=0.6)
    return folded[near[0]] if near else None


def suggest(key: str, siblings: Sequence[str], *, homes: Sequence[str] = ()) -> str:
    """What to say about the unknown ``key``, given the keys known at its place.

    ``homes`` are the full paths of known keys elsewhere in the document that have exactly this name.
    """
    if len(homes) == 1:
        return f"unknown key here; did you mean {homes[0]}?"
    if near := nearest(key, siblings):
        return f'unknown key; did you mean "{near}"?'
    return f"unknown key; known here: {', '.join(siblings)}"


def refuse(faults: Iterable[Fault]) -> None:
    """Raise ConfigError with a line for each fault, in the order of the file; return when there is none."""
    ordered = sorted(faults, key=lambda fault: (fault.line == 0, fault.line, fault.column))
    if lines := list(dict.fromkeys(str(fault) for fault in ordered)):
        raise ConfigError("\n".join(lines))
