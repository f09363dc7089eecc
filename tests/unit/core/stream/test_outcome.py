"""The outcome of a request from how it ended: every ending, with and without the engine's own end."""

from __future__ import annotations

import pytest

from gateway.core.stream.outcome import decide_outcome
from gateway.core.stream.summary import Ending, Outcome, StreamSummary

FINISHED = StreamSummary(terminal=True)
BROKEN = StreamSummary(terminal=False)

# ending: (stream cut before its end, stream whose end had come, body that is no stream)
TABLE: dict[Ending, tuple[Outcome, Outcome, Outcome]] = {
    Ending.COMPLETE: (Outcome.UPSTREAM_ERROR, Outcome.OK, Outcome.OK),
    Ending.EOF: (Outcome.UPSTREAM_ERROR, Outcome.OK, Outcome.UPSTREAM_ERROR),
    Ending.RESET: (Outcome.UPSTREAM_ERROR, Outcome.OK, Outcome.UPSTREAM_ERROR),
    Ending.BAD_FRAMING: (Outcome.UPSTREAM_ERROR,) * 3,
    Ending.NOT_SSE: (Outcome.UPSTREAM_ERROR,) * 3,
    Ending.OVERSIZE: (Outcome.UPSTREAM_ERROR,) * 3,
    Ending.FIRST_EVENT_TIMEOUT: (Outcome.UPSTREAM_TIMEOUT, Outcome.OK, Outcome.UPSTREAM_TIMEOUT),
    Ending.STALL_TIMEOUT: (Outcome.UPSTREAM_TIMEOUT, Outcome.OK, Outcome.UPSTREAM_TIMEOUT),
    Ending.TOTAL_TIMEOUT: (Outcome.UPSTREAM_TIMEOUT, Outcome.OK, Outcome.UPSTREAM_TIMEOUT),
    Ending.CLIENT_GONE: (Outcome.CLIENT_GONE, Outcome.OK, Outcome.CLIENT_GONE),
    Ending.CLIENT_STALLED: (Outcome.CLIENT_GONE, Outcome.OK, Outcome.CLIENT_GONE),
    Ending.KEY_REFUSED: (Outcome.UPSTREAM_ERROR,) * 3,
    Ending.SHUTDOWN: (Outcome.SHUTDOWN, Outcome.OK, Outcome.SHUTDOWN),
    Ending.REJECTED: (Outcome.REJECTED,) * 3,
    Ending.CONNECT_FAILED: (Outcome.UPSTREAM_ERROR,) * 3,
    Ending.BAD_STATUS: (Outcome.UPSTREAM_ERROR, Outcome.OK, Outcome.OK),
}


def test_the_table_knows_every_ending() -> None:
    assert set(TABLE) == set(Ending)


@pytest.mark.parametrize("ending", Ending)
def test_every_ending_has_its_outcome(ending: Ending) -> None:
    cut, ended, body = TABLE[ending]
    assert decide_outcome(BROKEN, ending, stream=True, status=200) is cut
    assert decide_outcome(FINISHED, ending, stream=True, status=200) is ended
    assert decide_outcome(FINISHED, ending, stream=False, status=200) is body


@pytest.mark.parametrize("ending", Ending)
def test_no_ending_makes_an_unfinished_answer_ok(ending: Ending) -> None:
    for stream in (True, False):
        assert decide_outcome(BROKEN, ending, stream=stream, status=200) is not Outcome.OK
    assert decide_outcome(None, ending, stream=True, status=200) is not Outcome.OK


def test_a_body_of_no_dialect_is_ok_by_its_framing() -> None:
    assert decide_outcome(None, Ending.COMPLETE, stream=False, status=200) is Outcome.OK
    assert decide_outcome(None, Ending.EOF, stream=False, status=200) is Outcome.UPSTREAM_ERROR


@pytest.mark.parametrize("ending", [Ending.COMPLETE, Ending.BAD_STATUS])
@pytest.mark.parametrize(
    "status,outcome",
    [
        (200, Outcome.OK),
        (201, Outcome.OK),
        (0, Outcome.UPSTREAM_ERROR),
        (101, Outcome.UPSTREAM_ERROR),
        (302, Outcome.UPSTREAM_ERROR),
        (400, Outcome.REJECTED),
        (404, Outcome.REJECTED),
        (429, Outcome.REJECTED),
        (500, Outcome.UPSTREAM_ERROR),
        (503, Outcome.UPSTREAM_ERROR),
    ],
)
def test_a_status_says_whose_fault_it_is(ending: Ending, status: int, outcome: Outcome) -> None:
    for stream in (True, False):
        assert decide_outcome(FINISHED, ending, stream=stream, status=status) is outcome
