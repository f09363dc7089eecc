"""Counts the calls that code of some packages makes, while a test runs it: no clock, so the same on every machine.

A Python call is a frame that is entered; a C call is a built-in that such a frame calls.  Calls that the tests' own
code makes into those packages are not counted: only what the product does by itself.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

TESTS = "/tests/"


@dataclass(slots=True)
class Calls:
    """What was counted, by place: package, file and function, and the built-in for a C call."""

    python: Counter[tuple[str, ...]] = field(default_factory=Counter)
    builtin: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def of(self, package: str) -> int:
        """Python calls in one package."""
        return sum(count for place, count in self.python.items() if place[0] == package)

    def builtins_of(self, package: str) -> int:
        """C calls from one package."""
        return sum(count for place, count in self.builtin.items() if place[0] == package)

    def told(self, per: int) -> str:
        """The most frequent places, for whoever has to find out what became more."""
        both = [("python", *it) for it in self.python.items()] + [("C", *it) for it in self.builtin.items()]
        lines = sorted(both, key=lambda it: -it[2])[:40]
        return "\n".join(f"{count / per:8.2f} {kind} {' '.join(place)}" for kind, place, count in lines)


@contextmanager
def counted(*packages: str) -> Iterator[Calls]:
    """Count in this thread until the block ends; ``packages`` are folders that their files lie in."""
    calls = Calls()
    known: dict[str, tuple[str, ...] | None] = {}

    def place_of(frame: FrameType) -> tuple[str, ...] | None:
        name = frame.f_code.co_filename
        if name not in known:
            known[name] = _place(name, packages)
        return known[name]

    def look(frame: FrameType, event: str, argument: Any) -> None:
        if event not in {"call", "c_call"}:
            return
        place = place_of(frame)
        if place is None:
            return
        if event == "c_call":
            calls.builtin[*place, frame.f_code.co_name, getattr(argument, "__qualname__", "?")] += 1
        elif frame.f_back is None or TESTS not in frame.f_back.f_code.co_filename:
            calls.python[*place, frame.f_code.co_name] += 1

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def _place(filename: str, packages: tuple[str, ...]) -> tuple[str, ...] | None:
    if TESTS in filename:
        return None
    for package in packages:
        _, found, rest = filename.rpartition(f"/{package}/")
        if found:
            return package, rest
    return None
