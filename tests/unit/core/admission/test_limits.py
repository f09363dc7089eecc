"""The in-flight limit of one worker: what is over its share is refused."""

from __future__ import annotations

import pytest

from gateway.core.admission.limits import admit_one
from gateway.errors import Overloaded


def test_one_more_than_the_share_is_refused_with_a_time_to_come_back() -> None:
    admit_one(holding=4, share=5, free_in_s=lambda: 1 / 0)
    with pytest.raises(Overloaded) as caught:
        admit_one(holding=5, share=5, free_in_s=lambda: 7.5)
    assert caught.value.retry_after_s == 7.5
