"""What control knows of clients: which changes it tells, what it counts, which limits workers share."""

from __future__ import annotations

from msgspec.structs import replace

from gateway.control import inbox
from gateway.control.clients import Clients, key_changes, places_of, shared_limits
from gateway.core.admission.keys import Key, KeyLimits
from gateway.core.admission.ledger import Limit
from gateway.core.admission.usage import UsageCount
from gateway.telemetry.events import EventName
from tests.fakes.fleets import pool
from tests.fakes.settled import record_of

A = Key(id="a", digest=b"a")
B = Key(id="b", digest=b"b", limits=KeyLimits(concurrency=2, tokens_per_day=100))


def told(actions: list[inbox.Action]) -> list[EventName]:
    return [action.name for action in actions if isinstance(action, inbox.Tell)]


def test_other_keys_are_published_and_the_same_ones_are_no_news() -> None:
    clients = Clients(keys=())
    actions = list(clients.replace((A, B)))
    assert actions[0] == inbox.PublishKeys((A, B))
    assert told(actions) == [EventName.KEYS_LOADED]
    assert list(clients.replace((A, B))) == []


def test_a_damaged_file_is_told_once_and_its_mending_too() -> None:
    clients = Clients(keys=(A,))
    assert told(list(clients.refuse("k", ("one", "two")))) == [EventName.KEYS_REFUSED]
    assert list(clients.refuse("k", ("one", "two"))) == []
    assert clients.keys == (A,)
    assert clients.problem == "one; two"
    assert told(list(clients.refuse("k", ("other",)))) == [EventName.KEYS_REFUSED]
    assert told(list(clients.replace((A,)))) == [EventName.KEYS_LOADED]
    assert clients.problem == ""


def test_changes_name_ids_and_nothing_else() -> None:
    changed = replace(B, weight=2.0)
    assert key_changes((A, B), (changed, Key(id="c", digest=b"c"))) == (
        "key a: removed",
        "key c: added",
        "key b: changed",
    )
    assert key_changes((A,), (replace(A, revoked_wall=1.0),)) == ("key a: revoked",)


def test_requests_that_a_backend_heard_of_are_counted_for_their_key() -> None:
    clients = Clients(keys=(A,))
    clients.now_wall = 86400.0 * 3 + 5
    record = record_of("r", accepted_wall=0.0)
    clients.count(
        [
            replace(record, key_id="a"),
            replace(record, key_id="a", backend=""),
            record,
            replace(record, key_id="a", summary=None),
        ],
        now=0.0,
    )
    usage = clients.usage_of("a", now=1.0, held=lambda limit: {"day:a": 7}.get(limit, 0))
    assert usage.held == {"concurrency": 0, "requests": 0, "tokens": 0, "day": 7}
    assert usage.today.requests == 2
    assert clients.tokens_today("day:a") == usage.today.tokens
    assert usage.today != UsageCount()
    assert not clients.turn()
    clients.now_wall += 86400.0
    assert clients.tokens_today("day:a") == 0
    assert clients.turn(), "whatever has looked at the counts before"
    assert not clients.turn()


def test_one_worker_shares_nothing_but_what_survives_it() -> None:
    pools = (pool("p", "a", "b", concurrency=4, queue=50), pool("q", "c", hold_s=5), pool("r", "d"))
    assert shared_limits(pools, (A, B), lone=True) == {"day:b": Limit(total=100, spent=True)}
    assert shared_limits(pools, (A, B), lone=False) == {
        "queue:p": Limit(total=50),
        "backend:a": Limit(total=4),
        "backend:b": Limit(total=4),
        "queue:q": Limit(total=1024),
        "concurrency:b": Limit(total=2),
        "day:b": Limit(total=100, spent=True),
    }
    assert places_of(pools) == {"backend:a": ("p", 2), "backend:b": ("p", 2)}
