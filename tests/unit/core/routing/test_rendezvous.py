"""Rendezvous hashing: the same everywhere, and evenly spread."""

from __future__ import annotations

from collections import Counter

import pytest

from gateway.core.routing.rendezvous import number_of, score


def test_the_numbers_are_those_of_every_other_process() -> None:
    assert number_of(b"session") == number_of(memoryview(b"session")) == 0x24F89FA18D88A5B5
    assert score(1, 2) == score(2, 1) == 0x1E535EEDE31428F0
    assert 0 <= score(2**64 - 1, 0) < 2**64


def test_sessions_are_spread_evenly() -> None:
    seeds = {name: number_of(name.encode()) for name in ("a", "b", "c", "d")}
    got = Counter(max(seeds, key=lambda name: score(seeds[name], number_of(b"%d" % n))) for n in range(4000))
    assert all(count == pytest.approx(1000, rel=0.1) for count in got.values())
