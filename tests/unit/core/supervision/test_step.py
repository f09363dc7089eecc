"""Starting, replacing, adopting, killing the silent, reloading, giving up."""

from __future__ import annotations

import pytest

from gateway.core.supervision.state import (
    CONTROL,
    Announce,
    CloseListeners,
    Heard,
    Kill,
    ListenersClosed,
    Mode,
    Notice,
    Phase,
    ReloadAsked,
    Spawn,
    StopAsked,
    Tell,
    Tick,
)
from gateway.core.supervision.step import is_fresh, step
from gateway.core.tether import Adopt, Beat, Drained, Release, Reload
from tests.fakes.supervision_story import Story, worker


def test_the_first_tick_starts_control_and_every_worker() -> None:
    story = Story(workers=2)
    assert story.tick() == (Spawn(CONTROL), Spawn(worker(0)), Spawn(worker(1)))
    assert story.tick(1.0) == ()


def test_ready_is_announced_once_when_the_last_child_is_ready() -> None:
    story = Story(workers=2)
    story.tick()
    assert story.ready(worker(1)) == ()
    assert story.ready(CONTROL) == ()
    assert story.ready(worker(0)) == (Announce(Notice.READY),)
    assert story.ready(worker(0)) == ()


def test_a_worker_that_ends_is_replaced_at_once() -> None:
    story = Story()
    story.all_ready()
    assert story.ends(worker(0)) == ()
    assert story.reason == "worker 0 ended with signal 9, 1 in a row: next in 0.0 s"
    assert story.due_in() == 0.0
    assert story.tick() == (Spawn(worker(0)),)


def test_a_worker_that_ends_with_status_0_unasked_is_replaced_too() -> None:
    story = Story()
    story.all_ready()
    story.ends(worker(0), 0)
    assert story.tick() == (Spawn(worker(0)),)


def test_control_is_replaced_and_workers_are_not_told() -> None:
    story = Story(workers=2)
    story.all_ready()
    story.ends(CONTROL)
    assert story.tick() == (Spawn(CONTROL),)


def test_pauses_double_between_crashes_in_a_row() -> None:
    story = Story(workers=2)
    story.all_ready()
    pauses = []
    for _ in range(4):
        story.ends(worker(0), 1)
        pauses.append(round(story.child(worker(0)).due - story.now, 3))
        story.tick(pauses[-1])
    assert pauses == [0.0, 0.2, 0.4, 0.8]


def test_nothing_starts_before_its_pause_is_over() -> None:
    story = Story(workers=2)
    story.all_ready()
    story.ends(worker(0))
    story.tick()
    story.ends(worker(0))
    assert story.tick(0.1) == ()
    assert story.tick(0.11) == (Spawn(worker(0)),)


def test_a_lone_worker_never_waits_longer_than_its_cap() -> None:
    policy = Story().policy
    story = Story(policy=type(policy)(max_crashes=20))
    story.all_ready()
    for _ in range(10):
        story.ends(worker(0))
        assert story.child(worker(0)).due - story.now <= 1.0
        story.tick(1.0)


def test_five_crashes_in_a_row_of_a_worker_end_everything_with_status_1() -> None:
    story = Story()
    story.all_ready()
    for _ in range(4):
        assert story.ends(worker(0), 1) == ()
        story.tick(1.0)
        story.ready(worker(0))
    assert story.ends(worker(0), 1) == (Announce(Notice.STOPPING), CloseListeners(0.5))
    assert story.reason == "worker 0 ended 5 times in a row, the last with status 1: giving up"
    assert story.state.exit_code == 1


def test_a_stable_time_ends_a_row_of_crashes() -> None:
    story = Story()
    story.all_ready()
    for _ in range(20):
        story.ends(worker(0))
        story.tick(1.0)
        story.ready(worker(0))
        story.passes(6.0)
    assert story.state.mode is Mode.RUNNING


def test_beats_before_readiness_do_not_end_a_row_of_crashes() -> None:
    story = Story()
    story.all_ready()
    story.ends(worker(0))
    story.tick()
    story.passes(8.0)
    assert story.child(worker(0)).crashes == 1


def test_control_that_was_ready_once_may_crash_for_ever() -> None:
    story = Story()
    story.all_ready()
    for _ in range(50):
        story.ends(CONTROL, 1)
        assert story.child().due - story.now <= 10.0
        assert story.passes(10.0) == [Spawn(CONTROL)]
    assert story.state.mode is Mode.RUNNING


def test_control_that_never_gets_ready_ends_everything_after_five_crashes() -> None:
    story = Story()
    story.tick()
    for _ in range(5):
        story.ends(CONTROL, 1)
        story.tick(10.0)
    assert (story.state.mode, story.state.exit_code) == (Mode.CLOSING, 1)


@pytest.mark.parametrize("name", [CONTROL, worker(0)], ids=str)
def test_status_2_before_readiness_is_the_operators_affair_and_not_retried(name) -> None:
    story = Story()
    story.tick()
    assert story.ends(name, 2) == (Announce(Notice.STOPPING), CloseListeners(0.5))
    assert story.reason == f"{name} cannot start"
    assert story.state.exit_code == 2


def test_status_2_after_readiness_is_a_crash_like_others() -> None:
    story = Story()
    story.all_ready()
    story.ends(CONTROL, 2)
    assert story.tick() == (Spawn(CONTROL),)


# --- adoption -----------------------------------------------------------------------------------------------------


def test_a_slot_without_worker_for_two_seconds_is_adopted_until_its_own_is_ready() -> None:
    story = Story(workers=3)
    story.all_ready()
    story.ends(worker(1))
    assert story.tick() == (Spawn(worker(1)),)
    assert story.tick(1.9) == ()
    assert story.due_in() == pytest.approx(0.1)
    assert story.tick(0.11) == (Tell(worker(2), Adopt(1)),)
    assert story.tick(1.0) == ()
    assert story.ready(worker(1)) == (Tell(worker(2), Release(1)),)
    assert story.reason == "worker 1 is ready after 3.01 s"


def test_a_worker_back_within_two_seconds_needs_no_adoption() -> None:
    story = Story(workers=2)
    story.all_ready()
    story.ends(worker(0))
    story.tick(1.0)
    assert story.ready(worker(0)) == ()
    assert [action for action in story.passes(5.0) if isinstance(action, Tell)] == []


def test_another_sibling_adopts_when_the_keeper_ends() -> None:
    story = Story(workers=3)
    story.all_ready()
    story.ends(worker(1))
    story.tick()
    story.tick(2.0)
    story.ends(worker(2))
    assert Tell(worker(0), Adopt(1)) in story.tick()


def test_a_keeper_that_ended_is_not_told_to_release() -> None:
    story = Story(workers=2)
    story.all_ready()
    story.ends(worker(1))
    story.tick()
    story.tick(2.0)
    story.ends(worker(0))
    assert story.ready(worker(1)) == ()


def test_crashes_of_a_starting_worker_do_not_put_the_adoption_off() -> None:
    story = Story(workers=2)
    story.all_ready()
    story.ends(worker(0))
    story.tick(1.0)
    story.ends(worker(0))
    story.tick(0.5)
    assert Tell(worker(1), Adopt(0)) in story.tick(0.6)


def test_nobody_adopts_while_no_sibling_is_ready() -> None:
    story = Story(workers=2)
    story.tick()
    assert story.passes(5.0) == []


def test_a_lone_worker_has_no_sibling() -> None:
    story = Story()
    story.all_ready()
    story.ends(worker(0))
    assert story.passes(5.0) == [Spawn(worker(0))]


# --- liveness -----------------------------------------------------------------------------------------------------


def test_a_silent_child_is_killed_once_and_then_replaced() -> None:
    story = Story()
    story.all_ready()
    for _ in range(9):
        story.tick(1.0)
        story.happens(Heard(CONTROL, Beat()))
    assert story.due_in() == pytest.approx(1.0)
    assert story.tick(1.0) == (Kill(worker(0)),)
    assert story.reason == "worker 0 was silent for 10.0 s: killed"
    assert story.tick(1.0) == ()
    story.ends(worker(0))
    assert story.tick() == (Spawn(worker(0)),)


def test_a_starting_child_has_longer_for_its_first_word() -> None:
    story = Story()
    story.tick()
    for _ in range(14):
        assert story.tick(2.0) == ()
    assert set(story.tick(2.0)) == {Kill(CONTROL), Kill(worker(0))}


def test_every_word_counts_as_a_sign_of_life() -> None:
    story = Story()
    story.all_ready()
    for _ in range(4):
        story.tick(4.0)
        story.happens(Heard(worker(0), Drained()))
        story.ready(CONTROL)
    assert story.child(worker(0)).phase is Phase.READY


def test_silence_while_the_supervisor_itself_stood_still_proves_nothing() -> None:
    story = Story()
    story.all_ready()
    assert story.tick(60.0) == ()
    assert story.reason == "the supervisor stood still for 60.0 s; silence of children is counted anew"
    for _ in range(4):
        assert story.tick(2.0) == ()
    assert set(story.tick(2.0)) == {Kill(CONTROL), Kill(worker(0))}


def test_ticks_are_asked_for_often_enough_to_notice_a_standstill() -> None:
    story = Story()
    story.all_ready()
    assert 0 < story.due_in() <= story.policy.stall_s / 2


def test_the_watchdog_is_fed_only_while_a_worker_is_ready_and_heard_of() -> None:
    story = Story(workers=2)

    def fresh() -> bool:
        return is_fresh(story.state, policy=story.policy, now=story.now)

    story.tick()
    assert not fresh()
    story.ready(CONTROL)
    assert not fresh()
    story.ready(worker(1))
    assert fresh()
    story.now += 10.0
    assert not fresh()
    story.happens(StopAsked())
    assert fresh()


# --- reload -------------------------------------------------------------------------------------------------------


def test_a_reload_is_told_to_control_and_over_when_it_is_ready_again() -> None:
    story = Story()
    story.all_ready()
    assert story.happens(ReloadAsked()) == (Announce(Notice.RELOADING), Tell(CONTROL, Reload()))
    assert story.ready(worker(0)) == ()
    assert story.ready(CONTROL) == (Announce(Notice.READY),)
    assert story.ready(CONTROL) == ()


@pytest.mark.parametrize("ticks", [0, 1], ids=["away", "starting"])
def test_a_reload_while_control_is_not_ready_is_told_to_the_next_one_and_over_when_that_is_through(ticks: int) -> None:
    story = Story()
    story.all_ready()
    story.ends(CONTROL)
    for _ in range(ticks):
        story.tick()
    assert story.happens(ReloadAsked()) == (Announce(Notice.RELOADING),)
    assert story.reason == "control is not ready; it reloads as soon as it is"
    story.tick()
    assert story.ready(CONTROL) == (Tell(CONTROL, Reload()),)
    assert story.ready(CONTROL) == (Announce(Notice.READY),)
    assert story.ready(CONTROL) == ()


def test_a_reload_that_control_did_not_live_to_see_through_is_told_to_the_next_one() -> None:
    story = Story()
    story.all_ready()
    story.happens(ReloadAsked())
    story.ends(CONTROL)
    story.tick()
    assert story.ready(CONTROL) == (Tell(CONTROL, Reload()),)


def test_a_reload_before_readiness_is_not_announced() -> None:
    story = Story()
    story.tick()
    assert story.happens(ReloadAsked()) == ()
    assert story.ready(CONTROL) == (Tell(CONTROL, Reload()),)
    assert story.ready(CONTROL) == ()
    assert story.ready(worker(0)) == (Announce(Notice.READY),)


def test_a_reload_on_the_way_out_is_refused() -> None:
    story = Story()
    story.all_ready()
    story.happens(StopAsked())
    assert story.happens(ReloadAsked()) == ()
    assert story.reason == "no reload on the way out"


def test_readiness_on_the_way_out_is_not_announced() -> None:
    story = Story()
    story.tick()
    story.ready(CONTROL)
    story.happens(StopAsked())
    assert story.ready(worker(0)) == ()


def test_a_step_leaves_the_state_it_was_given_alone() -> None:
    story = Story()
    before = story.state
    step(before, Tick(), policy=story.policy, now=story.now)
    step(before, ListenersClosed(), policy=story.policy, now=story.now)
    assert story.tick() == (Spawn(CONTROL), Spawn(worker(0)))
