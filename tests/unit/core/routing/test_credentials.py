"""The backend's own key: what is sent of it, and what is better not sent at all."""

from __future__ import annotations

import pytest

from gateway.core.routing.credentials import bearer, bearer_line


@pytest.mark.parametrize("value", ["sk-1", "sk-1\n", "  sk-1\r\n"])
def test_blanks_around_a_key_are_no_part_of_it(value: str) -> None:
    assert bearer(value) == "Bearer sk-1"
    assert bearer_line(value) == b"Authorization: Bearer sk-1\r\n"


@pytest.mark.parametrize("value", ["", " \n", "a\r\nX-Evil: 1", "a\x00b", "schlüssel", "a\x7f", "\ud800"])
def test_what_cannot_stand_in_a_header_is_not_sent(value: str) -> None:
    assert bearer(value) == ""
    assert bearer_line(value) == b""
