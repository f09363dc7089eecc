"""The ordered end: listeners close, workers finish their streams, control writes down what is left, in that order.

A second request hurries: what is left ends at once.  Every wait has an end, after which the child is killed and the
exit code says so.  Control is still replaced while workers drain, since their last records go to it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from gateway.core.supervision.state import (
    CONTROL,
    Announce,
    Child,
    CloseListeners,
    Exit,
    Mode,
    Notice,
    Phase,
    Tell,
)
from gateway.core.supervision.turn import Turn
from gateway.core.tether import Stop


def asked(turn: Turn) -> None:
    """Begin, or hurry when it has begun."""
    mode = turn.state.mode
    if mode is Mode.RUNNING:
        turn.tell("asked to stop")
        _begin(turn, exit_code=0)
        return
    turn.tell("asked again: stopping at once")
    turn.state = replace(turn.state, hurried=True)
    match mode:
        case Mode.CLOSING:
            turn.act(CloseListeners(0.0))
        case Mode.DRAINING:
            _tell_workers(turn)
        case Mode.ENDING:
            _tell_stop(turn, turn.child(CONTROL), 0.0)
        case Mode.ENDED:
            pass
        case _:
            assert_never(mode)


def give_up(turn: Turn, exit_code: int) -> None:
    """Begin an end that nobody asked for; streams of workers that are well may still finish."""
    _begin(turn, exit_code=exit_code)


def _begin(turn: Turn, *, exit_code: int) -> None:
    turn.state = replace(turn.state, mode=Mode.CLOSING, exit_code=exit_code)
    turn.act(Announce(Notice.STOPPING))
    turn.act(CloseListeners(turn.policy.queues_s))
    for child in turn.children():
        if child.name != CONTROL and child.phase is Phase.WAITING:
            turn.put(replace(child, phase=Phase.GONE))


def listeners_closed(turn: Turn) -> None:
    """Nothing new can come: the workers' time runs from here."""
    if turn.state.mode is Mode.CLOSING:
        turn.state = replace(turn.state, mode=Mode.DRAINING)
        _tell_workers(turn)
        _end_when_drained(turn)


def _tell_workers(turn: Turn) -> None:
    for child in turn.children():
        if child.name != CONTROL:
            _tell_stop(turn, child, turn.policy.drain_s)


def _tell_stop(turn: Turn, child: Child, deadline_s: float) -> None:
    """Have a living child stop; a later call can only shorten what an earlier one granted."""
    if not child.lives:
        return
    grace_s = turn.policy.grace_s
    if turn.state.hurried:
        deadline_s, grace_s = 0.0, turn.policy.hurry_s
    kill_at = turn.now + deadline_s + grace_s
    turn.act(Tell(child.name, Stop(deadline_s)))
    turn.put(replace(child, kill_at=kill_at if child.kill_at is None else min(kill_at, child.kill_at)))


def ended(turn: Turn, child: Child, code: int) -> bool:
    """Take note of an end during the stop; False for one that has to be replaced all the same."""
    mode = turn.state.mode
    if mode is Mode.RUNNING or (child.name == CONTROL and mode is not Mode.ENDING):
        return False
    turn.put(replace(child, phase=Phase.GONE))
    if code != 0:
        turn.tell(f"{child.name} ended with {how(code)}")
        turn.state = replace(turn.state, exit_code=turn.state.exit_code or 1)
    if child.name == CONTROL:
        _exit(turn)
    elif mode is Mode.DRAINING:
        _end_when_drained(turn)
    return True


def how(code: int) -> str:
    """An exit code in words."""
    return f"status {code}" if code >= 0 else f"signal {-code}"


def _end_when_drained(turn: Turn) -> None:
    if any(child.phase is not Phase.GONE for child in turn.children() if child.name != CONTROL):
        return
    turn.state = replace(turn.state, mode=Mode.ENDING)
    control = turn.child(CONTROL)
    if control.phase in {Phase.WAITING, Phase.GONE}:
        turn.put(replace(control, phase=Phase.GONE))
        _exit(turn)
    else:
        _tell_stop(turn, control, turn.policy.control_stop_s)


def _exit(turn: Turn) -> None:
    turn.state = replace(turn.state, mode=Mode.ENDED)
    turn.act(Exit(turn.state.exit_code))
