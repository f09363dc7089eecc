"""What one request holds: a place in the gateway, and a backend.

Station route.  Both are context managers, so that the counts of the desk go down on every way out.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from gateway.core.routing.snapshot import BackendView

if TYPE_CHECKING:
    from gateway.proxy.route import Desk


class Admission:
    """One request inside the gateway; a context manager."""

    __slots__ = ("_desk",)

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def __enter__(self) -> None:
        self._desk.holding += 1
        self._desk.quiet.clear()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        desk = self._desk
        desk.holding -= 1
        if not desk.holding:
            desk.quiet.set()
            desk.crowd = None
        elif desk.crowd is not None:
            desk.freed(desk.crowd)


class Lease:
    """One request's hold on a backend; a context manager that gives itself."""

    __slots__ = ("_desk", "_since", "_taken", "backend")

    def __init__(self, desk: Desk, backend: BackendView) -> None:
        self._desk = desk
        self._since = 0.0
        self._taken = False
        self.backend = backend

    def take(self) -> None:
        """Count it from now on, before its owner comes to enter it."""
        self._since = self._desk.took(self.backend.name)
        self._taken = True

    def give_back(self) -> None:
        """It ends."""
        self._desk.gave_back(self.backend.name)

    @property
    def alone(self) -> bool:
        """Whether the request has had the backend to itself so far."""
        return self._desk.was_alone(self.backend.name, self._since)

    def __enter__(self) -> Self:
        if not self._taken:
            self.take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._desk.gave_back(self.backend.name)
