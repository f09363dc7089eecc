"""Supervision against a world that does anything: whatever happens, no process twice, no busy loop, always an end."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gateway.core.supervision.state import (
    Announce,
    CloseListeners,
    Ended,
    Exit,
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
    SupervisionAction,
    SupervisionEvent,
    Tell,
)
from gateway.core.tether import Adopt, Beat, Drained, Ready, Release
from tests.fakes.supervision_story import Story

SLOTS = 3


class World(RuleBasedStateMachine):
    """Processes as they would be; every action is checked against them when it is performed."""

    @initialize(workers=st.integers(1, SLOTS))
    def begin(self, workers: int) -> None:
        self.story = Story(workers=workers)
        self.running: set[Name] = set()
        self.closing = False
        self.exits: list[int] = []
        self.accepting: dict[int, set[int]] = {}  # worker slot -> slots that it was told to accept on besides its own
        self.notices: list[Notice] = []

    def happens(self, event: SupervisionEvent) -> None:
        for action in self.story.happens(event):
            self.perform(action)

    def perform(self, action: SupervisionAction) -> None:
        match action:
            case Spawn(name):
                assert name not in self.running, "two processes in one slot"
                assert self.story.state.mode in {Mode.RUNNING, Mode.CLOSING, Mode.DRAINING}
                assert self.story.state.mode is Mode.RUNNING or name.role is Role.CONTROL
                self.running.add(name)
            case Kill(name):
                assert name in self.running
            case Tell(name, Adopt(slot)):
                assert slot != name.slot
                assert not any(slot in kept for kept in self.accepting.values()), "two keepers"
                self.accepting.setdefault(name.slot, set()).add(slot)
            case Tell(name, Release(slot)):
                self.accepting[name.slot].remove(slot)
            case Tell(name):
                assert name in self.running
            case CloseListeners():
                self.closing = True
            case Announce(notice):
                self.notices.append(notice)
            case Exit(code):
                assert not self.running, "a process is left behind"
                self.exits.append(code)

    def tick(self) -> None:
        for action in self.story.tick():
            self.perform(action)

    def names(self) -> list[Name]:
        return sorted(self.running, key=str)

    @rule(seconds=st.floats(0.0, 12.0))
    def time_passes(self, seconds: float) -> None:
        self.story.now += seconds
        self.tick()

    @rule(at=st.integers(0, SLOTS), word=st.sampled_from([Beat(), Ready(), Ready(), Drained()]))
    def a_child_speaks(self, at: int, word) -> None:
        if at < len(self.running):
            self.happens(Heard(self.names()[at], word))

    @rule(at=st.integers(0, SLOTS), code=st.sampled_from([-9, -11, 0, 1, 2]))
    def a_child_ends(self, at: int, code: int) -> None:
        if at < len(self.running):
            self.end(self.names()[at], code)

    def end(self, name: Name, code: int) -> None:
        self.running.remove(name)
        if name.role is Role.WORKER:
            self.accepting.pop(name.slot, None)
        self.happens(Ended(name, code))
        self.tick()

    @rule(sure=st.integers(0, 9))
    def a_stop_is_asked_for(self, sure: int) -> None:
        if sure == 0:
            self.happens(StopAsked())

    @rule()
    def a_reload_is_asked_for(self) -> None:
        self.happens(ReloadAsked())

    @rule()
    def listeners_close(self) -> None:
        if self.closing:
            self.closing = False
            self.happens(ListenersClosed())

    @invariant()
    def after_a_tick_nothing_is_due_at_once(self) -> None:
        self.tick()
        assert self.story.due_in() > 0

    @invariant()
    def the_machine_knows_which_processes_there_are(self) -> None:
        there = {child.name for child in self.story.state.children if child.lives or child.phase is Phase.DYING}
        assert there == self.running

    @invariant()
    def nothing_happens_after_the_exit(self) -> None:
        assert len(self.exits) == (self.story.state.mode is Mode.ENDED)

    def teardown(self) -> None:
        """Whatever went before: a stop and obedient children lead to the end, and in time."""
        if not hasattr(self, "story"):
            return
        self.happens(StopAsked())
        for _ in range(10):
            if self.closing:
                self.listeners_close()
            for name in self.names():
                if name in self.running and (name.role is Role.WORKER or self.story.state.mode is Mode.ENDING):
                    self.end(name, 0)
        assert self.story.state.mode is Mode.ENDED
        assert len(self.exits) == 1


TestWorld = World.TestCase
TestWorld.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
