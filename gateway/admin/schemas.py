"""Shapes that only the admin API has: lists, queries, errors.  The rest are the reports of `gateway.ports`.

msgspec structs rather than a second set of models: the reports that control makes are themselves the schema, so the
description can never drift from what is sent.  Pure.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from gateway.core.routing.adapters import AdapterReport
from gateway.core.stream.summary import Outcome
from gateway.ports import BackendReport, QuarantineReport, RequestFilter, StoredRequest

MAX_LIMIT: Final = 500

Id = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Word = Annotated[str, Meta(max_length=256)]


class BackendList(Struct, frozen=True, kw_only=True):
    """Every backend, in configuration order; ``next`` is always null, the list is whole."""

    items: tuple[BackendReport, ...]
    next: int | None = None


class QuarantineList(Struct, frozen=True, kw_only=True):
    """Every request that is refused since engines died of it, the oldest first; ``next`` is always null."""

    items: tuple[QuarantineReport, ...]
    next: int | None = None


class Released(Struct, frozen=True, kw_only=True):
    """Requests with ``fingerprint`` are served again."""

    fingerprint: str


class AdapterList(Struct, frozen=True, kw_only=True):
    """Every configured LoRA adapter, in configuration order; ``next`` is always null, the list is whole."""

    items: tuple[AdapterReport, ...]
    next: int | None = None


class AdapterQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an adapter is to be loaded."""

    reload: Annotated[
        bool, Meta(description="Read its files anew where it is loaded already, at one backend after the other.")
    ] = False


class NoQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing is taken from the query string."""


class RequestList(Struct, frozen=True, kw_only=True):
    """A page of settled requests; ``next`` is the ``before`` of the page that follows, null on the last one."""

    items: tuple[StoredRequest, ...]
    next: int | None


class RequestQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which settled requests are wanted."""

    limit: Annotated[int, Meta(ge=1, le=MAX_LIMIT, description="How many at most.")] = 50
    before: Annotated[Id, Meta(description="Continue after this row: the `next` of the page before. 0: begin.")] = 0
    model: Annotated[Word, Meta(description="Only this model.")] = ""
    backend: Annotated[Word, Meta(description="Only this backend.")] = ""
    outcome: Annotated[Outcome | None, Meta(description="Only this outcome.")] = None
    slowest: Annotated[bool, Meta(description="Longest duration first, instead of newest first.")] = False

    def filter(self) -> RequestFilter:
        """The question to the history; one row more than wanted shows whether another page follows."""
        return RequestFilter(
            limit=self.limit + 1,
            before=self.before,
            model=self.model,
            backend=self.backend,
            outcome=self.outcome.value if self.outcome else "",
            slowest=self.slowest,
        )


class EventsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to begin in the live feed."""

    last_event_id: Annotated[
        Id | None,
        Meta(description="As the header `Last-Event-ID`, which wins: send what came after it; 0: all that is kept."),
    ] = None


class ErrorDetail(Struct, frozen=True, kw_only=True):
    """What went wrong; ``code`` is stable, ``param`` names the field at fault."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorBody(Struct, frozen=True, kw_only=True):
    """The one shape of every error."""

    error: ErrorDetail


class ConfigFaults(Struct, frozen=True, kw_only=True):
    """A configuration that was refused: the error, and the verdict with every fault."""

    error: ErrorDetail
    applied: bool
    faults: tuple[str, ...]
    changes: tuple[str, ...]
    needs_restart: tuple[str, ...]


class Health(Struct, frozen=True, kw_only=True):
    """The control process answers.  Whether backends serve is in the status."""

    status: str = "ok"
