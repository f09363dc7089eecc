"""From what is wanted to one SELECT: filters, order and paging.

Values are always bound, never written into the statement.  Pure.
"""

from __future__ import annotations

from typing import Final

from gateway.core.stream.summary import Outcome
from gateway.ports import RequestFilter
from gateway.store.rows import Cell

MAX_ROWS: Final = 1000
"""No answer holds more, whatever was asked for."""


def select_requests(wanted: RequestFilter) -> tuple[str, tuple[Cell, ...]]:
    """The statement and its values; it yields ``id`` and ``record``.

    Newest first, continuing below the id ``before``; with ``slowest`` by ``total_s`` downwards (ties: newest first),
    continuing after the row ``before`` in that order.
    """
    equal = _equalities(wanted)
    conditions = [f"{column} = ?" for column, _ in equal]
    values: list[Cell] = [value for _, value in equal]
    if wanted.before > 0:
        if wanted.slowest:
            conditions.append("(total_s, id) < ((SELECT total_s FROM requests WHERE id = ?), ?)")
            values += [wanted.before, wanted.before]
        else:
            conditions.append("id < ?")
            values.append(wanted.before)
    where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    order = "total_s DESC, id DESC" if wanted.slowest else "id DESC"
    values.append(max(1, min(wanted.limit, MAX_ROWS)))
    # The ids first: a sort would otherwise carry whole records.
    ids = f"SELECT id FROM requests {where}ORDER BY {order} LIMIT ?"  # noqa: S608 - values are bound
    return f"SELECT id, record FROM requests WHERE id IN ({ids}) ORDER BY {order}", tuple(values)  # noqa: S608 - as above


def _equalities(wanted: RequestFilter) -> list[tuple[str, str]]:
    """Columns to compare; a unary plus keeps an index from being used, so that the plan never depends on luck.

    Newest first walks the index of the rarest value: an outcome that is not ok, a backend, a model.  Slowest walks
    the index that is sorted by duration and covers all three columns.
    """
    ranked = [("backend", wanted.backend), ("model", wanted.model)]
    ranked.insert(len(ranked) if wanted.outcome == Outcome.OK else 0, ("outcome", wanted.outcome))
    given = [(column, value) for column, value in ranked if value]
    first = 0 if wanted.slowest else 1
    return [(column if rank < first else f"+{column}", value) for rank, (column, value) in enumerate(given)]


SELECT_USAGE: Final = """
    SELECT key_id, model, COUNT(*), SUM(prompt_tokens), SUM(completion_tokens), SUM(reasoning_tokens)
    FROM requests
    WHERE accepted_wall >= ? AND key_id <> '' AND backend <> '' GROUP BY key_id, model
"""
"""Requests that a backend was asked to serve, and their tokens, since a time of day."""

SELECT_ONE: Final = "SELECT id, record FROM requests WHERE request_id = ? ORDER BY id DESC LIMIT 1"
