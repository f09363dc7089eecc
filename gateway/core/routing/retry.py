"""May a failed attempt be tried at another backend?  Only when nothing of the request was accepted.

Station forward.  Pure.  A request that may have reached an engine is never replayed: it could be answered twice.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from gateway.core.routing.backpressure import BUSY_STATUSES
from gateway.core.stream.summary import Ending, StreamSummary

SHUTDOWN_ANSWER: Final = b"cannot schedule new futures after shutdown"
"""What vLLM 0.32 was seen to answer with 500 while it drains after SIGTERM, /health still 200."""

ABORT: Final = "abort"
INTERNAL_ERROR: Final = 500


class Attempt(Struct, frozen=True, kw_only=True):
    """How one attempt ended.

    ``status`` is 0 when no head came; ``answer`` the start of an error body; ``sent_to_client`` whether the client
    has had a byte; ``stopping`` whether we ourselves are ending the backend; ``zero_token_abort`` whether the whole
    answer is an abort without a token.
    """

    ending: Ending
    status: int = 0
    answer: bytes = b""
    sent_to_client: bool = False
    stopping: bool = False
    zero_token_abort: bool = False


def aborted_before_a_token(summary: StreamSummary) -> bool:
    """Whether the engine answered with nothing but an abort, as it does to what comes while it drains."""
    return summary.finish_reasons == (ABORT,) and not summary.completion_tokens and not summary.chunks


def may_try_elsewhere(attempt: Attempt) -> bool:
    """Whether the request was not accepted and the client has seen nothing."""
    if attempt.sent_to_client:
        return False
    if attempt.ending is Ending.CONNECT_FAILED:
        return True
    if attempt.ending is Ending.BAD_STATUS and attempt.status in BUSY_STATUSES:
        return True
    if not attempt.stopping:
        return False
    refused = attempt.status == INTERNAL_ERROR and SHUTDOWN_ANSWER in attempt.answer
    return refused or attempt.zero_token_abort
