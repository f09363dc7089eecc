"""One step of supervision: what an event means for the children and what is to be done.

Workers are replaced at once, a row of crashes slows down and then ends everything; control may crash for as long as it
likes once it has been ready, since workers serve on without it.  A child that ends with status 2 before it was ever
ready has told the operator why: nothing is retried.  The ordered end is in ``stop``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, assert_never

from gateway.core.supervision import stop
from gateway.core.supervision.state import (
    CONTROL,
    Announce,
    Child,
    Ended,
    Heard,
    Kill,
    ListenersClosed,
    Mode,
    Name,
    Notice,
    Phase,
    ReloadAsked,
    Role,
    Spawn,
    StopAsked,
    Supervision,
    SupervisionEvent,
    SupervisionPolicy,
    SupervisionStep,
    Tell,
    Tick,
)
from gateway.core.supervision.turn import Turn
from gateway.core.tether import Adopt, Beat, Drained, Ready, Release, Reload, Word

OPERATOR_FAULT: Final = 2
"""Exit status of a child that says: configuration, files or ports have to be put right."""


def step(state: Supervision, event: SupervisionEvent, *, policy: SupervisionPolicy, now: float) -> SupervisionStep:
    """Decide what ``event`` means; ``reason`` joins a sentence for each thing that is worth telling."""
    turn = Turn(state, policy=policy, now=now)
    match event:
        case Tick():
            _tick(turn)
        case Heard(name=name, word=word):
            _heard(turn, turn.child(name), word)
        case Ended():
            _ended(turn, event)
        case StopAsked():
            stop.asked(turn)
        case ReloadAsked():
            _reload_asked(turn)
        case ListenersClosed():
            stop.listeners_closed(turn)
        case _:
            assert_never(event)
    return turn.done()


def is_fresh(state: Supervision, *, policy: SupervisionPolicy, now: float) -> bool:
    """Whether the service manager's watchdog may be fed: a worker is ready and was heard of, or the end has begun."""
    return state.mode is not Mode.RUNNING or any(
        child.name.role is Role.WORKER and child.phase is Phase.READY and now - child.heard_at < policy.silent_s
        for child in state.children
    )


def next_at(state: Supervision, *, policy: SupervisionPolicy) -> float:
    """When the next Tick can matter, if nothing else happens before."""
    instants = [state.ticked_at + policy.stall_s / 2]
    adopting = state.mode is Mode.RUNNING
    for child in state.children:
        if child.phase is Phase.WAITING:
            instants.append(child.due)
        if child.lives:
            instants.append(child.heard_at + _patience_s(child, policy))
            if child.kill_at is not None:
                instants.append(child.kill_at)
        if adopting and child.down_since is not None and child.keeper is None and _sibling(state, child) is not None:
            instants.append(child.down_since + policy.adopt_after_s)
    return min(instants)


def _patience_s(child: Child, policy: SupervisionPolicy) -> float:
    return policy.silent_s if child.phase is Phase.READY else policy.start_s


def _tick(turn: Turn) -> None:
    stood_still_s = turn.now - turn.state.ticked_at
    if stood_still_s > turn.policy.stall_s:
        turn.tell(f"the supervisor stood still for {stood_still_s:.1f} s; silence of children is counted anew")
    for child in turn.children():
        if child.phase is Phase.WAITING and child.due <= turn.now:
            turn.act(Spawn(child.name))
            turn.put(replace(child, phase=Phase.STARTING, heard_at=turn.now))
        elif child.lives and stood_still_s > turn.policy.stall_s:
            turn.put(replace(child, heard_at=turn.now))
        elif child.lives:
            _check_patience(turn, child)
    if turn.state.mode is Mode.RUNNING:
        for child in turn.children():
            _find_keeper(turn, child)
    turn.state = replace(turn.state, ticked_at=turn.now)


def _check_patience(turn: Turn, child: Child) -> None:
    silent_s = turn.now - child.heard_at
    if child.kill_at is not None and child.kill_at <= turn.now:
        turn.tell(f"{child.name} did not stop in time: killed")
    elif silent_s >= _patience_s(child, turn.policy):
        turn.tell(f"{child.name} was silent for {silent_s:.1f} s: killed")
    else:
        return
    turn.act(Kill(child.name))
    turn.put(replace(child, phase=Phase.DYING))


def _sibling(state: Supervision, child: Child) -> Child | None:
    """A ready worker that can accept for ``child``: the next slot that has one."""
    ready = [other for other in state.children if other.name.role is Role.WORKER and other.phase is Phase.READY]
    slots = len(state.children)
    return min(ready, key=lambda other: (other.name.slot - child.name.slot) % slots, default=None)


def _find_keeper(turn: Turn, child: Child) -> None:
    if child.down_since is None or child.keeper is not None:
        return
    down_s = turn.now - child.down_since
    keeper = _sibling(turn.whole(), child)
    if keeper is None or down_s < turn.policy.adopt_after_s:
        return
    turn.act(Tell(keeper.name, Adopt(child.name.slot)))
    turn.put(replace(child, keeper=keeper.name.slot))
    turn.tell(f"{child.name} has been down for {down_s:.1f} s: {keeper.name} accepts for it")


def _heard(turn: Turn, child: Child, word: Word) -> None:
    match word:
        case Ready():
            _ready(turn, child)
        case Beat() | Drained():
            _beat(turn, child)
        case _:
            assert_never(word)


def _beat(turn: Turn, child: Child) -> None:
    stable = child.phase is Phase.READY and turn.now - child.ready_at >= turn.policy.stable_s
    turn.put(replace(child, heard_at=turn.now, crashes=0 if stable else child.crashes))


def _ready(turn: Turn, child: Child) -> None:
    begins = child.phase is Phase.STARTING
    if begins:
        _begins(turn, child)
    else:
        _beat(turn, child)
    if turn.state.mode is not Mode.RUNNING:
        return
    if turn.state.reloading and child.name == CONTROL:
        _reload_on(turn, begins=begins)
    if not turn.state.announced and all(other.phase is Phase.READY for other in turn.children()):
        turn.state = replace(turn.state, announced=True)
        turn.act(Announce(Notice.READY))


def _begins(turn: Turn, child: Child) -> None:
    turn.put(
        replace(
            child,
            phase=Phase.READY,
            heard_at=turn.now,
            ready_at=turn.now,
            ever_ready=True,
            down_since=None,
            keeper=None,
        )
    )
    if child.keeper is not None:
        turn.act(Tell(Name(Role.WORKER, child.keeper), Release(child.name.slot)))
    down = "" if child.down_since is None else f" after {turn.now - child.down_since:.2f} s"
    turn.tell(f"{child.name} is ready{down}")


def _reload_on(turn: Turn, *, begins: bool) -> None:
    """Control is ready while a reload is open: it is through, or has yet to be told of it.

    A new control goes on with what was applied last, so a reload that was asked for before it was ready, or that its
    predecessor did not live to see through, is told now.
    """
    if begins:
        turn.act(Tell(CONTROL, Reload()))
        return
    turn.state = replace(turn.state, reloading=False)
    if turn.state.announced:
        turn.act(Announce(Notice.READY))


def _reload_asked(turn: Turn) -> None:
    if turn.state.mode is not Mode.RUNNING:
        turn.tell("no reload on the way out")
        return
    turn.state = replace(turn.state, reloading=True)
    if turn.state.announced:
        turn.act(Announce(Notice.RELOADING))
    if turn.child(CONTROL).phase is Phase.READY:
        turn.act(Tell(CONTROL, Reload()))
    else:
        turn.tell("control is not ready; it reloads as soon as it is")


def _ended(turn: Turn, event: Ended) -> None:
    child = turn.child(event.name)
    for kept in turn.children():
        if kept.keeper is not None and child.name == Name(Role.WORKER, kept.keeper):
            turn.put(replace(kept, keeper=None))
    if stop.ended(turn, child, event.code):
        return
    crashed = replace(child, phase=Phase.GONE, crashes=child.crashes + 1, kill_at=None)
    turn.put(crashed)
    if turn.state.mode is Mode.RUNNING and (exit_code := _hopeless(turn, crashed, event.code)):
        stop.give_up(turn, exit_code)
        return
    pause_s = _pause_s(turn, crashed)
    down_since = turn.now if child.down_since is None and child.name != CONTROL else child.down_since
    turn.put(replace(crashed, phase=Phase.WAITING, due=turn.now + pause_s, down_since=down_since))
    turn.tell(f"{child.name} ended with {stop.how(event.code)}, {crashed.crashes} in a row: next in {pause_s:.1f} s")


def _hopeless(turn: Turn, child: Child, code: int) -> int:
    """The exit code to give up with, 0 to go on."""
    if code == OPERATOR_FAULT and not child.ever_ready:
        turn.tell(f"{child.name} cannot start")
        return OPERATOR_FAULT
    if child.crashes >= turn.policy.max_crashes and not (child.name == CONTROL and child.ever_ready):
        turn.tell(f"{child.name} ended {child.crashes} times in a row, the last with {stop.how(code)}: giving up")
        return 1
    return 0


def _pause_s(turn: Turn, child: Child) -> float:
    if child.crashes == 1:
        return 0.0
    policy = turn.policy
    alone = child.name != CONTROL and len(turn.children()) == 2
    longest = policy.pause_alone_max_s if alone else policy.pause_max_s
    return min(policy.pause_first_s * 2.0 ** min(child.crashes - 2, 32), longest)
