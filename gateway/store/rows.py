"""From a settled request to a row and back.

The order of :data:`COLUMNS` is the one truth that the insert statement and :func:`to_row` share.  Pure.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.core.link.messages import RequestRecord
from gateway.core.stream.summary import StreamSummary
from gateway.ports import StoredRequest

Cell = str | bytes | int | float | None

COLUMNS: Final = (
    "accepted_wall",
    "request_id",
    "endpoint",
    "model",
    "pool",
    "backend",
    "profile",
    "key_id",
    "stream",
    "status",
    "outcome",
    "error_code",
    "total_s",
    "queue_s",
    "ttft_s",
    "ttfv_s",
    "gateway_s",
    "prompt_tokens",
    "completion_tokens",
    "reasoning_tokens",
    "decode_tps",
    "reasoning_tps",
    "visible_tps",
    "effective_visible_tps",
    "record",
)

INSERT: Final = f"INSERT INTO requests ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608 - names of our own

_NOTHING: Final = StreamSummary()


class Unreadable(Exception):
    """A stored record that this release cannot decode; the message says why."""


def to_row(record: RequestRecord) -> tuple[Cell, ...]:
    """The cells of a row, in the order of :data:`COLUMNS`.  Raises ValueError when it cannot be written as JSON."""
    summary = record.summary or _NOTHING
    return (
        record.accepted_wall,
        record.request_id,
        record.endpoint,
        record.model,
        record.pool,
        record.backend,
        record.profile,
        record.key_id,
        int(record.stream),
        record.status,
        record.outcome.value,
        record.error_code,
        record.total_s,
        record.queue_s,
        record.ttft_s,
        record.ttfv_s,
        record.gateway_s,
        summary.prompt_tokens,
        summary.completion_tokens,
        summary.reasoning_tokens,
        summary.decode_tps,
        summary.reasoning_tps,
        summary.visible_tps,
        summary.effective_visible_tps,
        msgspec.json.encode(record).decode(),
    )


def from_row(row_id: int, record: str | bytes) -> StoredRequest:
    """The stored request behind the ``id`` and ``record`` cells.  Raises Unreadable."""
    try:
        return StoredRequest(id=row_id, record=msgspec.json.decode(record, type=RequestRecord))
    except (msgspec.MsgspecError, ValueError) as error:
        raise Unreadable(str(error)) from error
