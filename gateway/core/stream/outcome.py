"""The last word on a request: from how it ended and what was seen to the one outcome that is recorded.

Called by settle, once per accepted request.  Pure and total.  It must never call an answer ok that the engine did
not finish itself: a missing end marker, an `abort`, an error inside a 200 are the backend's failures, however clean
the HTTP around them was.
"""

from __future__ import annotations

from typing import assert_never

from gateway.core.stream.summary import Ending, Outcome, StreamSummary


def decide_outcome(summary: StreamSummary | None, ending: Ending, *, stream: bool, status: int) -> Outcome:
    """Return the outcome of a request.

    ``summary`` is None where nothing was read of the answer (no answer, or an endpoint without a dialect);
    ``status`` is the backend's HTTP status, 0 where none came.  An answer whose terminal marker was seen is ok even
    when the connection then broke, stalled or was left by a client that had all it asked for: nothing of it is
    missing.  A 4xx is the request's own fault (rejected), any other status that is no success the backend's.
    """
    match ending:
        case Ending.REJECTED:
            return Outcome.REJECTED
        case Ending.COMPLETE | Ending.BAD_STATUS:
            return _by_answer(summary, stream=stream, status=status)
        case Ending.EOF | Ending.RESET:
            return _unless_finished(Outcome.UPSTREAM_ERROR, summary, stream=stream)
        case Ending.FIRST_EVENT_TIMEOUT | Ending.STALL_TIMEOUT | Ending.TOTAL_TIMEOUT:
            return _unless_finished(Outcome.UPSTREAM_TIMEOUT, summary, stream=stream)
        case Ending.CLIENT_GONE | Ending.CLIENT_STALLED:
            return _unless_finished(Outcome.CLIENT_GONE, summary, stream=stream)
        case Ending.SHUTDOWN:
            return _unless_finished(Outcome.SHUTDOWN, summary, stream=stream)
        case Ending.BAD_FRAMING | Ending.NOT_SSE | Ending.OVERSIZE | Ending.CONNECT_FAILED | Ending.KEY_REFUSED:
            return Outcome.UPSTREAM_ERROR
        case _:
            assert_never(ending)


def _by_answer(summary: StreamSummary | None, *, stream: bool, status: int) -> Outcome:
    if 400 <= status < 500:
        return Outcome.REJECTED
    if not 200 <= status < 300:
        return Outcome.UPSTREAM_ERROR
    if summary is None:
        # Without a stream there are endpoints whose bodies say nothing of an end (tokenize, models): framing is all.
        return Outcome.UPSTREAM_ERROR if stream else Outcome.OK
    return Outcome.OK if summary.terminal else Outcome.UPSTREAM_ERROR


def _unless_finished(otherwise: Outcome, summary: StreamSummary | None, *, stream: bool) -> Outcome:
    # A body that is no stream is whole only when its framing says so.
    return Outcome.OK if stream and summary is not None and summary.terminal else otherwise
