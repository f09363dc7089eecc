"""The queue by examples: order, priorities, who has to go, when to come back.  The rest is in the property tests."""

from __future__ import annotations

import pytest

from gateway.core.admission.queue import FairQueue, Ticket
from gateway.refusals import QueueFull, QuotaExceeded


def queue_of(**weights: float) -> FairQueue:
    queue = FairQueue()
    for flow, weight in weights.items():
        queue.weigh(flow, weight)
    return queue


def wait(queue: FairQueue, flow: str, *, at: float = 0.0, priority: int = 0, want: str = "m", **more: float) -> Ticket:
    it = Ticket(flow, want=want, queued_at=at, priority=priority)
    queue.offer(it, places=int(more.get("places", 100)), share=more.get("share", 1.0), now=more.get("now", at))
    return it


def drained(queue: FairQueue) -> list[Ticket]:
    found = []
    while (first := queue.first()) is not None:
        queue.serve(first, now=0.0)
        found.append(first)
    return found


def test_within_a_flow_the_first_comes_first_and_a_step_of_priority_is_a_second() -> None:
    queue = queue_of(a=1.0)
    first, second = wait(queue, "a", at=0.0), wait(queue, "a", at=1.0)
    urgent, patient = wait(queue, "a", at=2.0, priority=-5), wait(queue, "a", at=-9.0, priority=9)
    assert drained(queue) == [urgent, first, patient, second]


def test_a_flow_that_comes_late_is_not_owed_the_past() -> None:
    queue = queue_of(a=1.0, b=1.0)
    for _ in range(20):
        wait(queue, "a")
    for _ in range(10):
        first = queue.first()
        assert first is not None
        queue.settle("a", charged=queue.serve(first, now=0.0), cost=500.0)
    for _ in range(5):
        wait(queue, "b")
    flows = [it.flow for it in drained(queue)]
    assert "".join(flows[:10]) in {"ababababab", "bababababa"}


def test_a_request_that_cost_more_than_it_was_charged_puts_its_flow_back() -> None:
    queue = queue_of(a=1.0, b=1.0)
    for _ in range(4):
        wait(queue, "a")
        wait(queue, "b")
    first = queue.first()
    assert first is not None
    charged = queue.serve(first, now=0.0)
    queue.settle(first.flow, charged=charged, cost=charged * 3)
    other = "b" if first.flow == "a" else "a"
    assert [it.flow for it in drained(queue)][:2] == [other, other]
    queue.settle("unknown", charged=1.0, cost=2.0)


def test_what_cannot_be_served_now_is_passed_over() -> None:
    queue = queue_of(a=1.0, b=1.0)
    blocked, other = wait(queue, "a", want="x"), wait(queue, "b", want="y")
    assert queue.first(unless={"x"}) is other
    queue.serve(other, now=0.0)
    assert queue.first(unless={"x"}) is None
    later = wait(queue, "a", at=1, want="y")
    assert queue.first(unless={"x"}) is later
    assert queue.first(unless={"x", "y"}) is None
    assert queue.first() is blocked


def test_without_keys_a_full_queue_is_full() -> None:
    queue = queue_of(**{"": 1.0})
    for _ in range(3):
        wait(queue, "", places=3)
    with pytest.raises(QueueFull) as caught:
        wait(queue, "", places=3)
    assert caught.value.retry_after_s == 10.0, "nothing has been served yet"
    with pytest.raises(QueueFull):
        wait(queue_of(a=1.0), "a", places=0)


def test_a_key_has_its_part_of_the_queue_and_no_more() -> None:
    queue = queue_of(a=1.0)
    for _ in range(5):
        wait(queue, "a", places=10, share=0.5)
    with pytest.raises(QuotaExceeded) as caught:
        wait(queue, "a", places=10, share=0.5)
    assert caught.value.param == "queue_share"
    small = queue_of(a=1.0)
    wait(small, "a", places=10, share=0.01)
    with pytest.raises(QuotaExceeded):
        wait(small, "a", places=10, share=0.01)


def test_in_a_full_queue_the_heaviest_gives_up_its_last_and_is_told_of_its_part() -> None:
    queue = queue_of(flood=1.0, calm=1.0)
    crowd = [wait(queue, "flood", at=at, places=4) for at in range(4)]
    late = Ticket("calm", want="m", queued_at=9.0, priority=0)
    assert queue.offer(late, places=4, share=1.0, now=9.0) is crowd[-1]
    assert not crowd[-1].waiting
    with pytest.raises(QuotaExceeded):
        wait(queue, "flood", places=4)


def test_in_a_queue_that_is_full_of_equals_a_newcomer_over_its_part_is_told_so_and_another_that_it_is_full() -> None:
    queue = queue_of(a=1.0, b=1.0, c=1.0)
    for flow in "ab":
        for _ in range(2):
            wait(queue, flow, places=4)
    with pytest.raises(QuotaExceeded):
        wait(queue, "a", places=4)
    wait(queue, "c", places=4)
    tiny = queue_of(a=1.0, b=1.0)
    wait(tiny, "a", places=1)
    with pytest.raises(QueueFull):
        wait(tiny, "b", places=1)


def test_when_to_come_back_is_told_by_the_pace_of_the_last_half_minute() -> None:
    queue = queue_of(a=1.0)
    for at in range(60):
        queue.pass_by("a", now=100.0 + at)
        queue.freed(100.5 + at)
    assert queue.retry_after_s(160.0) == 1.0
    for _ in range(4):
        wait(queue, "a", at=160.0)
    assert queue.retry_after_s(160.0) == pytest.approx(5.0, abs=0.2)


def test_tickets_that_left_and_entries_that_are_stale_do_not_pile_up() -> None:
    queue = queue_of(a=1.0, b=1.0)
    kept = wait(queue, "a")
    for at in range(5000):
        queue.leave(wait(queue, "b", at=at))
        queue.settle("a", charged=500.0, cost=501.0)
    assert len(queue._order) < 200
    assert sum(len(heap) for heap in queue._lines["b"]._heaps.values()) < 200
    queue.weigh("a", 2.0)
    assert drained(queue) == [kept]


def test_flows_that_nobody_knows_any_more_are_let_go_once_nothing_of_them_waits() -> None:
    queue = queue_of(a=1.0, b=1.0)
    it = wait(queue, "a")
    queue.forget(keep=())
    assert list(queue.counts()) == [("a", 1)]
    queue.leave(it)
    queue.forget(keep=("b",))
    queue.weigh("a", 1.0)
    assert queue.first() is None
