"""A failed attempt is tried elsewhere only when nothing of the request was accepted."""

from __future__ import annotations

import pytest

from gateway.core.routing.retry import SHUTDOWN_ANSWER, Attempt, may_try_elsewhere
from gateway.core.stream.summary import Ending

SHUT = b'{"error":{"message":"' + SHUTDOWN_ANSWER + b'"}}'


@pytest.mark.parametrize(
    "attempt",
    [
        Attempt(ending=Ending.CONNECT_FAILED),
        Attempt(ending=Ending.BAD_STATUS, status=503),
        Attempt(ending=Ending.BAD_STATUS, status=429),
        Attempt(ending=Ending.BAD_STATUS, status=500, answer=SHUT, stopping=True),
        Attempt(ending=Ending.COMPLETE, status=200, zero_token_abort=True, stopping=True),
    ],
)
def test_what_was_not_accepted_may_go_elsewhere_but_never_after_a_byte(attempt: Attempt) -> None:
    assert may_try_elsewhere(attempt)
    sent = Attempt(
        ending=attempt.ending,
        status=attempt.status,
        answer=attempt.answer,
        stopping=attempt.stopping,
        zero_token_abort=attempt.zero_token_abort,
        sent_to_client=True,
    )
    assert not may_try_elsewhere(sent)


@pytest.mark.parametrize(
    "attempt",
    [
        *[Attempt(ending=ending) for ending in Ending if ending is not Ending.CONNECT_FAILED],
        *[Attempt(ending=Ending.BAD_STATUS, status=status) for status in (400, 404, 500, 502, 504)],
        Attempt(ending=Ending.BAD_STATUS, status=500, answer=SHUT),
        Attempt(ending=Ending.BAD_STATUS, status=500, answer=b"another", stopping=True),
        Attempt(ending=Ending.COMPLETE, status=200, zero_token_abort=True),
        Attempt(ending=Ending.EOF, status=200, stopping=True),
    ],
)
def test_everything_else_is_never_replayed(attempt: Attempt) -> None:
    assert not may_try_elsewhere(attempt)
