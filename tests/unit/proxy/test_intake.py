"""How many bytes of bodies come in at once."""

from __future__ import annotations

import pytest

from gateway.proxy.intake import Intake
from gateway.refusals import ReceptionFull


def test_what_is_over_the_limit_is_refused_and_counts_nothing() -> None:
    intake = Intake()
    intake.take(60, limit_bytes=100)
    with pytest.raises(ReceptionFull) as caught:
        intake.take(41, limit_bytes=100)
    assert (caught.value.status, caught.value.retry_after_s) == (503, 2.0)
    intake.take(40, limit_bytes=100)
    assert intake.held_bytes == 100
    intake.let_go(60)
    intake.let_go(40)
    assert intake.held_bytes == 0
