"""How long a backend that says "not now" is passed over."""

from __future__ import annotations

import pytest

from gateway.core.routing.backpressure import BUSY_MAX_S, BUSY_S, busy_s


@pytest.mark.parametrize(
    "value, expected_s",
    [
        (b"7", 7.0),
        (b"0", BUSY_S),
        (b"3600", BUSY_MAX_S),
        (b"9" * 400, BUSY_S),
        (b"-3", BUSY_S),
        (b"1.5", BUSY_S),
        (b"Wed, 21 Oct 2026 07:28:00 GMT", BUSY_S),
        (b"", BUSY_S),
    ],
)
def test_seconds_count_within_bounds_and_nothing_else(value: bytes, expected_s: float) -> None:
    assert busy_s([(b"content-type", b"x"), (b"retry-after", value)]) == expected_s


def test_without_a_word_it_is_a_second() -> None:
    assert busy_s([]) == BUSY_S
