import sqlite3
from collections.abc import Iterator

import pytest

from gateway.core.stream.summary import Outcome
from gateway.ports import RequestFilter
from gateway.store.queries import MAX_ROWS, SELECT_ONE, select_requests
from gateway.store.rows import INSERT, to_row
from gateway.store.schema import migrate
from tests.fakes.settled import record_of

ROWS = [
    # model, backend, outcome, total_s
    ("m1", "a", Outcome.OK, 5.0),
    ("m1", "b", Outcome.UPSTREAM_ERROR, 1.0),
    ("m2", "a", Outcome.OK, 9.0),
    ("m1", "a", Outcome.OK, 5.0),
    ("m2", "b", Outcome.REJECTED, 0.1),
    ("m1", "a", Outcome.CLIENT_GONE, 7.0),
]


@pytest.fixture(scope="module")
def connection() -> Iterator[sqlite3.Connection]:
    opened = sqlite3.connect(":memory:", isolation_level=None)
    migrate(opened)
    for at, (model, backend, outcome, total_s) in enumerate(ROWS):
        record = record_of(f"r{at + 1}", model=model, backend=backend, outcome=outcome, total_s=total_s)
        opened.execute(INSERT, to_row(record))
    yield opened
    opened.close()


def ids(connection: sqlite3.Connection, wanted: RequestFilter) -> list[int]:
    return [row[0] for row in connection.execute(*select_requests(wanted))]


@pytest.mark.parametrize(
    "wanted,expected",
    [
        (RequestFilter(), [6, 5, 4, 3, 2, 1]),
        (RequestFilter(limit=2), [6, 5]),
        (RequestFilter(before=3), [2, 1]),
        (RequestFilter(before=1), []),
        (RequestFilter(model="m2"), [5, 3]),
        (RequestFilter(model="none"), []),
        (RequestFilter(backend="b"), [5, 2]),
        (RequestFilter(outcome="ok"), [4, 3, 1]),
        (RequestFilter(outcome="client_gone", model="m1"), [6]),
        (RequestFilter(outcome="ok", model="m1", backend="a", before=4), [1]),
        (RequestFilter(slowest=True), [3, 6, 4, 1, 2, 5]),
        (RequestFilter(slowest=True, limit=2), [3, 6]),
        (RequestFilter(slowest=True, before=6), [4, 1, 2, 5]),
        (RequestFilter(slowest=True, before=4), [1, 2, 5]),
        (RequestFilter(slowest=True, before=99), []),
        (RequestFilter(slowest=True, model="m1", outcome="ok"), [4, 1]),
        (RequestFilter(model="' OR 1=1 --"), []),
    ],
    ids=str,
)
def test_rows_come_in_the_order_that_was_asked_for(
    connection: sqlite3.Connection, wanted: RequestFilter, expected: list[int]
) -> None:
    assert ids(connection, wanted) == expected


@pytest.mark.parametrize("slowest", [False, True])
def test_pages_add_up_to_the_whole(connection: sqlite3.Connection, slowest: bool) -> None:
    seen: list[int] = []
    while page := ids(connection, RequestFilter(limit=2, before=seen[-1] if seen else 0, slowest=slowest)):
        seen += page
    assert seen == ids(connection, RequestFilter(slowest=slowest))


@pytest.mark.parametrize("limit,bound", [(0, 1), (-5, 1), (10, 10), (10**9, MAX_ROWS)])
def test_no_answer_is_unbounded(limit: int, bound: int) -> None:
    assert select_requests(RequestFilter(limit=limit))[1][-1] == bound


@pytest.mark.parametrize(
    "wanted,index",
    [
        (RequestFilter(model="m1", backend="a", outcome="ok"), "requests_by_backend"),
        (RequestFilter(model="m1", outcome="ok"), "requests_by_model"),
        (RequestFilter(model="m1", backend="a", outcome="rejected"), "requests_by_outcome"),
        (RequestFilter(outcome="ok"), "requests_by_outcome"),
        (RequestFilter(model="m1", backend="a", slowest=True), "requests_by_total_s"),
        (RequestFilter(outcome="rejected", slowest=True, before=3), "requests_by_total_s"),
    ],
    ids=str,
)
def test_a_question_walks_the_index_that_suits_it(
    connection: sqlite3.Connection, wanted: RequestFilter, index: str
) -> None:
    statement, values = select_requests(wanted)
    plan = " ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values))
    assert index in plan


def test_a_request_id_is_found_by_its_index(connection: sqlite3.Connection) -> None:
    plan = " ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {SELECT_ONE}", ("r1",)))
    assert "requests_by_request_id" in plan
    assert connection.execute(SELECT_ONE, ("r3",)).fetchone()[0] == 3
