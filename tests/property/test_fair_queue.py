"""The queue whatever comes: nobody is lost or served twice, weights are kept, nobody starves, order is kept."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.admission.queue import FairQueue, Ticket
from gateway.refusals import QueueFull, QuotaExceeded

WEIGHTS = st.lists(st.floats(0.25, 8.0), min_size=2, max_size=5)


def ticket(flow: str, *, at: float = 0.0, priority: int = 0, want: str = "m") -> Ticket:
    return Ticket(flow, want=want, queued_at=at, priority=priority)


def offer(queue: FairQueue, it: Ticket, *, places: int = 100_000) -> Ticket | None:
    return queue.offer(it, places=places, share=1.0, now=0.0)


def serve(queue: FairQueue, *, cost: float = 500.0) -> Ticket:
    """Serve whoever is next, to the end."""
    first = queue.first()
    assert first is not None
    queue.settle(first.flow, charged=queue.serve(first, now=0.0), cost=cost)
    return first


@settings(max_examples=200, deadline=None)
@given(weights=WEIGHTS, rounds=st.integers(10, 300))
def test_flows_that_never_run_dry_are_never_apart_by_more_than_one_request_of_each(
    weights: list[float], rounds: int
) -> None:
    queue = FairQueue()
    names = [f"k{at}" for at in range(len(weights))]
    for name, weight in zip(names, weights, strict=True):
        queue.weigh(name, weight)
        for _ in range(rounds + 1):
            offer(queue, ticket(name))
    served: Counter[str] = Counter()
    for _ in range(rounds):
        served[serve(queue).flow] += 1
        for one, w1 in zip(names, weights, strict=True):
            for two, w2 in zip(names, weights, strict=True):
                assert served[one] / w1 - served[two] / w2 <= 1 / w1 + 1 / w2 + 1e-6


@settings(max_examples=100, deadline=None)
@given(weights=WEIGHTS, places=st.integers(1, 6), seed=st.integers(0, 2**32))
def test_tokens_follow_the_weights_though_what_a_request_costs_is_known_at_its_end_only(
    weights: list[float], places: int, seed: int
) -> None:
    """Each place serves one request after the other, long ones longer; each flow's requests are of its own length."""
    chance, queue = random.Random(seed), FairQueue()
    names = [f"k{at}" for at in range(len(weights))]
    lengths = {name: chance.choice((50, 500, 2000)) for name in names}
    for name, weight in zip(names, weights, strict=True):
        queue.weigh(name, weight)
        for _ in range(places + 1):
            offer(queue, ticket(name))
    busy: list[tuple[float, str, float, float]] = []
    tokens: Counter[str] = Counter()
    now = 0.0
    while now < 100 * max(lengths.values()):
        while len(busy) < places:
            first = queue.first()
            assert first is not None
            charged = queue.serve(first, now=now)
            cost = chance.uniform(0.5, 1.5) * lengths[first.flow]
            busy.append((now + cost, first.flow, charged, cost))
            offer(queue, ticket(first.flow, at=now))
        busy.sort()
        now, flow, charged, cost = busy.pop(0)
        queue.settle(flow, charged=charged, cost=cost)
        tokens[flow] += int(cost)
    allowed = 2 * (places + 2) * 1.5
    for one, w1 in zip(names, weights, strict=True):
        for two, w2 in zip(names, weights, strict=True):
            apart = tokens[one] / w1 - tokens[two] / w2
            assert apart <= allowed * (max(500, lengths[one]) / w1 + max(500, lengths[two]) / w2)


@settings(max_examples=100, deadline=None)
@given(cost=st.floats(1.0, 50_000.0), weight=st.floats(0.3, 5.0), places=st.integers(1, 8))
def test_a_first_guess_that_is_far_off_moves_nobody_s_present(cost: float, weight: float, places: int) -> None:
    """One flow has taken every place at a guess before the other comes; from then on both get their parts."""
    queue = FairQueue()
    for name, its in (("early", 1.0), ("late", weight)):
        queue.weigh(name, its)
    busy = [("early", queue.pass_by("early", now=0.0)) for _ in range(places)]
    served: Counter[str] = Counter()
    for name in ("early", "late"):
        for _ in range(1000):
            offer(queue, ticket(name))
    for _ in range(40 * places):
        flow, charged = busy.pop(0)
        queue.settle(flow, charged=charged, cost=cost)
        first = queue.first()
        assert first is not None
        busy.append((first.flow, queue.serve(first, now=0.0)))
        served[first.flow] += 1
    apart = served["late"] / weight - served["early"]
    assert abs(apart) <= 2 * (places + 2) * max(1.0, 1 / weight)


@settings(max_examples=150, deadline=None)
@given(weights=WEIGHTS, seed=st.integers(0, 2**32))
def test_nobody_starves(weights: list[float], seed: int) -> None:
    """A request that comes into a flow of its own is served within the turns that the weights allow the others."""
    chance, queue = random.Random(seed), FairQueue()
    names = [f"k{at}" for at in range(len(weights))]
    for name, weight in zip(names, weights, strict=True):
        queue.weigh(name, weight)
    for name in names[1:]:
        for _ in range(chance.randint(50, 300)):
            offer(queue, ticket(name))
    for _ in range(chance.randint(0, 40)):
        serve(queue)
    late = ticket(names[0])
    offer(queue, late)
    turns = 0
    while late.waiting:
        serve(queue)
        turns += 1
    # Each other flow is at most one request ahead of the present, whatever its weight.
    assert turns <= 1 + len(weights)


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32), places=st.integers(0, 20))
def test_every_request_ends_once_and_the_queue_is_never_over_its_bound(seed: int, places: int) -> None:
    chance, queue = random.Random(seed), FairQueue()
    ends: Counter[Ticket] = Counter()
    waiting: list[Ticket] = []
    for step in range(400):
        match chance.choice(("come", "come", "come", "go", "serve", "settle", "weigh")):
            case "come":
                it = ticket(chance.choice("abcd"), at=step, priority=chance.randint(-3, 3), want=chance.choice("mn"))
                queue.weigh(it.flow, chance.choice((1.0, 3.0)))
                try:
                    victim = offer(queue, it, places=places)
                except (QueueFull, QuotaExceeded):
                    ends[it] += 1
                    continue
                waiting.append(it)
                if victim is not None:
                    ends[victim] += 1
                    waiting.remove(victim)
            case "go" if waiting:
                it = waiting.pop(chance.randrange(len(waiting)))
                queue.leave(it)
                queue.leave(it)
                ends[it] += 1
            case "serve" if waiting:
                unless = {"m"} if chance.random() < 0.3 else set[str]()
                first = queue.first(unless=unless)
                able = [it for it in waiting if it.want not in unless]
                assert (first is None) == (not able)
                if first is not None:
                    own = [it.rank for it in able if it.flow == first.flow]
                    assert first.rank == min(own), "order in a flow"
                    queue.serve(first, now=step)
                    waiting.remove(first)
                    ends[first] += 1
            case "settle":
                queue.settle(chance.choice("abcd"), charged=500.0, cost=chance.uniform(1, 5000))
            case "weigh":
                queue.weigh(chance.choice("abcd"), chance.uniform(0.1, 5.0))
            case _:
                pass
        assert queue.waiting == len(waiting) <= places
        assert dict(queue.counts()) == dict(Counter(it.flow for it in waiting))
        assert dict(queue.wants) == dict(Counter(it.want for it in waiting))
    assert set(ends.values()) <= {1}


@settings(max_examples=100, deadline=None)
@given(places=st.integers(2, 50), flood=st.integers(2, 200))
def test_a_flood_of_one_key_keeps_no_other_out(places: int, flood: int) -> None:
    queue = FairQueue()
    for name in ("flood", "calm"):
        queue.weigh(name, 1.0)
    for at in range(flood):
        try:
            offer(queue, ticket("flood", at=at), places=places)
        except QueueFull:
            break
    calm = [ticket("calm", at=1000 + at) for at in range(places // 2)]
    for it in calm:
        offer(queue, it, places=places)
    assert all(it.waiting for it in calm)
    assert queue.first() is not None
