"""The ordered end: listeners, workers, control; hurried; with children that do not obey, crash or are not there."""

from __future__ import annotations

from gateway.core.supervision.state import (
    CONTROL,
    Announce,
    CloseListeners,
    Exit,
    Kill,
    ListenersClosed,
    Mode,
    Notice,
    Phase,
    Spawn,
    StopAsked,
    SupervisionPolicy,
    Tell,
)
from gateway.core.tether import Stop
from tests.fakes.supervision_story import Story, worker

HURRY_S = 1.0


def draining(workers: int = 1) -> Story:
    story = Story(workers=workers, policy=SupervisionPolicy(hurry_s=HURRY_S))
    story.all_ready()
    story.happens(StopAsked())
    story.happens(ListenersClosed())
    return story


def test_a_stop_goes_from_listeners_to_workers_to_control() -> None:
    story = Story(workers=2)
    story.all_ready()
    assert story.happens(StopAsked()) == (Announce(Notice.STOPPING), CloseListeners(0.5))
    assert story.happens(ListenersClosed()) == (Tell(worker(0), Stop(30.0)), Tell(worker(1), Stop(30.0)))
    assert story.ends(worker(1), 0) == ()
    assert story.ends(worker(0), 0) == (Tell(CONTROL, Stop(3.0)),)
    assert story.ends(CONTROL, 0) == (Exit(0),)
    assert story.state.mode is Mode.ENDED


def test_a_second_request_while_draining_stops_workers_at_once() -> None:
    story = draining()
    assert story.happens(StopAsked()) == (Tell(worker(0), Stop(0.0)),)
    assert story.tick(0.9) == ()
    assert story.tick(0.11) == (Kill(worker(0)),)
    assert story.reason == "worker 0 did not stop in time: killed"
    assert story.ends(worker(0)) == (Tell(CONTROL, Stop(0.0)),)
    assert story.ends(CONTROL, 0) == (Exit(1),)


def test_a_third_request_grants_no_new_time() -> None:
    story = draining()
    story.happens(StopAsked())
    story.now += 0.9
    story.happens(StopAsked())
    assert story.tick(0.11) == (Kill(worker(0)),)


def test_a_second_request_while_listeners_close_does_not_wait_for_the_queues() -> None:
    story = Story()
    story.all_ready()
    story.happens(StopAsked())
    assert story.happens(StopAsked()) == (CloseListeners(0.0),)
    assert story.happens(ListenersClosed()) == (Tell(worker(0), Stop(0.0)),)


def test_a_second_request_while_control_ends_hurries_it() -> None:
    story = draining()
    story.ends(worker(0), 0)
    assert story.happens(StopAsked()) == (Tell(CONTROL, Stop(0.0)),)
    assert story.tick(1.01) == (Kill(CONTROL),)
    assert story.happens(StopAsked()) == ()
    assert story.ends(CONTROL) == (Exit(1),)
    assert story.happens(StopAsked()) == ()


def test_a_worker_beyond_its_deadline_and_grace_is_killed_and_the_exit_code_says_so() -> None:
    story = draining()
    assert story.passes(34.5) == []
    assert story.passes(1.0) == [Kill(worker(0))]
    story.ends(worker(0))
    story.ends(CONTROL, 0)
    assert story.state.exit_code == 1


def test_the_next_tick_is_due_when_a_patience_ends() -> None:
    story = draining()
    story.happens(StopAsked())
    assert story.due_in() == HURRY_S


def test_a_worker_that_crashes_on_the_way_out_is_not_replaced() -> None:
    story = draining(workers=2)
    assert story.ends(worker(0), -11) == ()
    assert story.reason == "worker 0 ended with signal 11"
    assert story.tick(1.0) == ()
    story.ends(worker(1), 0)
    assert story.ends(CONTROL, 0) == (Exit(1),)


def test_a_worker_that_ends_while_listeners_close_is_not_waited_for() -> None:
    story = Story()
    story.all_ready()
    story.happens(StopAsked())
    assert story.ends(worker(0), 0) == ()
    assert story.happens(ListenersClosed()) == (Tell(CONTROL, Stop(3.0)),)


def test_control_is_still_replaced_while_workers_drain() -> None:
    story = draining()
    story.ends(CONTROL)
    assert story.tick() == (Spawn(CONTROL),)
    assert story.ends(worker(0), 0) == (Tell(CONTROL, Stop(3.0)),)


def test_control_may_crash_more_than_five_times_while_workers_drain() -> None:
    story = draining()
    for _ in range(6):
        story.ends(CONTROL, 1)
        story.passes(4.0)
    assert story.state.mode is Mode.DRAINING


def test_control_that_is_not_there_at_the_end_is_not_started_for_it() -> None:
    story = draining()
    story.ends(CONTROL)
    assert story.ends(worker(0), 0) == (Exit(0),)
    assert story.tick(5.0) == ()


def test_a_killed_control_is_waited_for() -> None:
    story = draining()
    for _ in range(5):
        story.tick(2.0)
    assert {child.phase for child in story.state.children} == {Phase.DYING}
    assert story.ends(worker(0)) == ()
    assert story.ends(CONTROL) == (Exit(1),)


def test_a_worker_that_waits_for_its_next_start_is_not_started() -> None:
    story = Story(workers=2)
    story.all_ready()
    story.ends(worker(0))
    story.happens(StopAsked())
    assert story.tick(5.0) == ()
    assert story.happens(ListenersClosed()) == (Tell(worker(1), Stop(30.0)),)


def test_a_starting_worker_is_told_to_stop_too() -> None:
    story = Story()
    story.tick()
    story.happens(StopAsked())
    assert story.happens(ListenersClosed()) == (Tell(worker(0), Stop(30.0)),)


def test_giving_up_lets_the_other_workers_finish() -> None:
    story = Story(workers=2)
    story.all_ready()
    for _ in range(5):
        story.ends(worker(0), 1)
        story.tick(1.0)
    assert story.happens(ListenersClosed()) == (Tell(worker(1), Stop(30.0)),)
    story.ends(worker(1), 0)
    assert story.ends(CONTROL, 0) == (Exit(1),)


def test_closed_listeners_mean_nothing_later() -> None:
    story = draining()
    assert story.happens(ListenersClosed()) == ()


def test_a_slot_that_was_down_makes_nothing_due_while_the_others_drain() -> None:
    story = Story(workers=2)
    story.all_ready()
    story.ends(worker(0))
    story.happens(StopAsked())
    story.happens(ListenersClosed())
    story.tick(2.1)
    assert story.due_in() > 1.0
