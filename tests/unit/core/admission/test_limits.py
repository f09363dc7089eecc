"""The in-flight limit and its shares."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.admission.limits import admit_one, share_of
from gateway.errors import Overloaded


@given(limit=st.integers(0, 10_000), workers=st.integers(1, 64))
def test_shares_add_up_to_the_limit_and_differ_by_one_at_most(limit: int, workers: int) -> None:
    shares = [share_of(limit, worker=w, workers=workers) for w in range(workers)]
    assert sum(shares) == limit
    assert max(shares) - min(shares) <= 1


def test_one_more_than_the_share_is_refused_with_a_time_to_come_back() -> None:
    admit_one(holding=4, share=5)
    with pytest.raises(Overloaded) as caught:
        admit_one(holding=5, share=5)
    assert caught.value.retry_after_s == 1
