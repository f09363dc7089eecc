"""Dialogues with the health machine: what a backend shows, second by second, and what the gateway makes of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from gateway.core.routing.backend import ALWAYS, BackendState
from gateway.core.routing.evidence import (
    DrainAsked,
    DrainLifted,
    HealthEvent,
    Probed,
    ProbeResult,
    RequestFailed,
    RequestsSucceeded,
    Restarted,
)
from gateway.core.routing.health import Enter, Health, HealthPolicy, Kept, ProbeNow, begin, probe_period_s, step

OK = Probed(result=ProbeResult.OK)
REFUSED = Probed(result=ProbeResult.REFUSED)
TIMEOUT = Probed(result=ProbeResult.TIMEOUT)
ILL = Probed(result=ProbeResult.BAD_STATUS, detail="/health answered 503")


@dataclass
class Dialogue:
    """A backend and what was decided about it; ``told`` has one "time: reason" for each change of state."""

    policy: HealthPolicy = field(default_factory=HealthPolicy)
    health: Health = field(default_factory=lambda: begin(0.0))
    told: list[str] = field(default_factory=list)
    asked_to_probe: list[float] = field(default_factory=list)
    may_eject: bool = True

    def at(self, now: float, *events: HealthEvent) -> Dialogue:
        for event in events:
            done = step(self.health, event, policy=self.policy, now=now, may_eject=self.may_eject)
            self.health = done.state
            for action in done.actions:
                match action:
                    case Enter(state=state, reason=reason):
                        assert (state, reason) == (self.health.state, done.reason) == (state, self.health.reason)
                        assert self.health.since == now
                        self.told.append(f"{now:g}: {reason}")
                    case Kept():
                        assert done.reason == self.health.reason
                        self.told.append(f"{now:g}: {done.reason}")
                    case ProbeNow():
                        self.asked_to_probe.append(now)
        return self

    def fail(self, now: float, code: str, *, times: int = 1) -> Dialogue:
        return self.at(now, *[RequestFailed(code=code, at=now)] * times)

    @property
    def state(self) -> BackendState:
        return self.health.state


def serving() -> Dialogue:
    talk = Dialogue().at(0.0, OK)
    talk.told.clear()
    return talk


def test_an_unknown_backend_serves_at_its_first_good_probe() -> None:
    assert Dialogue().at(0.1, OK).told == ["0.1: serving: /health answered 200"]


def test_an_unknown_backend_that_refuses_is_ejected_at_once_and_serves_at_its_first_good_probe() -> None:
    talk = Dialogue().at(0.1, REFUSED).at(0.6, REFUSED).at(1.1, OK)
    assert talk.told == [
        "0.1: ejected: connection refused",
        "1.1: serving again: /health answered 200 after 2 bad probes",
    ]


def test_an_unknown_backend_that_is_slow_stays_unknown_until_it_was_slow_three_times() -> None:
    talk = Dialogue().at(2.0, TIMEOUT).at(4.5, TIMEOUT)
    assert talk.state is BackendState.UNKNOWN
    assert talk.at(7.0, TIMEOUT).told == ["7: ejected: no answer in time 3 times in 5.0 s"]


def test_a_serving_backend_is_ejected_at_the_third_refusal_and_the_reason_counts_them() -> None:
    talk = serving().at(2.0, REFUSED).at(2.6, REFUSED)
    assert talk.state is BackendState.SERVING
    assert talk.at(3.2, REFUSED).told == ["3.2: ejected: connection refused 3 times in 1.2 s"]


def test_a_good_probe_between_bad_ones_starts_the_count_again() -> None:
    talk = serving().at(2.0, REFUSED, REFUSED).at(2.5, OK).at(3.0, REFUSED, REFUSED)
    assert talk.told == []


def test_mixed_failures_are_told_as_such() -> None:
    talk = serving().at(2.0, TIMEOUT).at(4.0, ILL).at(4.5, ILL)
    assert talk.told == ["4.5: ejected: 3 bad probes in 2.5 s, the last: /health answered 503"]


def test_one_bad_probe_is_enough_where_the_policy_says_so() -> None:
    talk = Dialogue(policy=HealthPolicy(fall=1)).at(0.0, OK).at(2.0, ILL)
    assert talk.told[-1] == "2: ejected: /health answered 503"


def test_rise_asks_for_several_good_probes_in_a_row() -> None:
    talk = Dialogue(policy=HealthPolicy(rise=3)).at(0.0, OK).at(0.5, OK).at(1.0, ILL).at(1.5, OK, OK)
    assert talk.state is BackendState.UNKNOWN
    assert talk.at(2.0, OK).state is BackendState.SERVING


def test_the_reason_of_an_ejected_backend_follows_what_is_seen_now() -> None:
    talk = serving().at(1.0, TIMEOUT, TIMEOUT, TIMEOUT).at(2.0, REFUSED)
    assert talk.health.reason == "ejected: connection refused"
    assert len(talk.told) == 1


def test_a_backend_too_busy_for_probes_but_ending_requests_well_is_not_ejected() -> None:
    talk = serving()
    for second in range(1, 20):
        talk.at(float(second), TIMEOUT).at(second + 0.5, RequestsSucceeded())
    assert talk.told == []


def test_a_success_does_not_excuse_a_port_that_refuses() -> None:
    talk = serving().at(1.0, REFUSED).at(1.2, RequestsSucceeded()).at(1.5, REFUSED).at(2.0, REFUSED)
    assert talk.state is BackendState.EJECTED


def test_an_engine_that_answers_health_but_whose_requests_die_is_ejected_with_growing_pauses() -> None:
    talk = serving()
    now = 1.0
    for _ in range(8):
        talk.fail(now, "backend_error", times=5)
        until = now + 100
        while talk.state is not BackendState.SERVING and now < until:
            now += 0.5
            talk.at(now, OK)
    reasons = [line.split(": ", 1)[1] for line in talk.told]
    assert reasons[0] == "ejected for 2 s: 5 of the last 5 requests failed, the last with backend_error"
    assert reasons[2] == "ejected for 4 s: the first request after the pause failed with backend_error"
    pauses = [reason.split()[2] for reason in reasons if reason.startswith("ejected")]
    assert pauses == ["2", "4", "8", "16", "32", "60", "60", "60"]
    assert reasons[1] == "serving again: /health answered 200 after a pause of 2.0 s"


def test_strikes_are_forgotten_after_a_quiet_minute() -> None:
    talk = serving().fail(1.0, "backend_died", times=5).at(3.0, OK)
    talk.at(4.0, RequestsSucceeded(count=50)).at(62.9, OK)
    assert talk.health.strikes == 1
    talk.at(63.0, OK)
    assert talk.health.strikes == 0
    assert "ejected for 2 s" in talk.fail(64.0, "backend_died", times=5).told[-1]


def test_after_a_success_on_probation_it_takes_a_run_of_failures_again() -> None:
    talk = serving().fail(1.0, "backend_died", times=5).at(3.0, OK, RequestsSucceeded())
    assert talk.fail(3.5, "backend_died", times=4).state is BackendState.SERVING
    assert "ejected for 4 s: 5 of the last 6" in talk.fail(3.6, "backend_died").told[-1]


def test_an_engine_that_died_with_its_streams_serves_at_the_first_good_probe_of_the_new_process() -> None:
    talk = serving()
    for round_ in range(4):
        start = 100.0 * round_
        talk.fail(start + 1.0, "backend_died", times=20).at(start + 1.1, REFUSED).at(start + 1.2, OK)
        assert talk.state is BackendState.SERVING
        assert talk.health.strikes == 0


def test_a_few_failures_among_many_good_endings_do_not_eject() -> None:
    talk = serving()
    for tick in range(100):
        talk.at(tick * 0.1 + 1.0, RequestsSucceeded(count=3)).fail(tick * 0.1 + 1.0, "backend_garbled", times=2)
    assert talk.told == []


def test_failures_that_are_far_apart_do_not_eject() -> None:
    talk = serving()
    for minute in range(1, 60):
        talk.fail(minute * 6.0, "backend_silent", times=2)
    assert talk.told == []


def test_failures_count_across_the_halves_of_the_window() -> None:
    talk = serving().fail(1.0, "backend_silent", times=3).fail(7.0, "backend_silent", times=2)
    assert talk.state is BackendState.EJECTED


@pytest.mark.parametrize("code", ["bad_request", "backend_refused", "overloaded", "model_not_found", "gateway_fault"])
def test_a_storm_of_what_is_not_the_backends_fault_never_ejects(code: str) -> None:
    assert serving().fail(1.0, code, times=10_000).told == []


def test_a_lost_connection_asks_for_a_probe_at_once_and_a_timeout_does_not() -> None:
    talk = serving().fail(1.0, "backend_silent").fail(2.0, "connect_failed").fail(3.0, "backend_died")
    assert talk.asked_to_probe == [2.0, 3.0]


def test_late_news_of_the_process_before_does_not_count() -> None:
    talk = serving().at(5.0, REFUSED, REFUSED, REFUSED).at(6.0, OK)
    talk.at(6.1, *[RequestFailed(code="backend_died", at=4.9)] * 20)
    assert talk.state is BackendState.SERVING
    assert talk.health.tally.all_failed == 0


def test_what_ends_while_ejected_changes_nothing() -> None:
    talk = serving().at(1.0, REFUSED, REFUSED, REFUSED)
    before = talk.health
    talk.at(2.0, RequestsSucceeded()).fail(2.0, "backend_died", times=50)
    assert talk.health == before


def test_draining_sends_nothing_new_whatever_probes_say_and_can_be_lifted() -> None:
    talk = serving().at(1.0, DrainAsked(why="asked by an operator")).at(2.0, OK)
    talk.fail(2.0, "backend_died", times=50).at(2.5, RequestsSucceeded())
    assert talk.state is BackendState.DRAINING
    assert talk.at(3.0, DrainLifted()).told == [
        "1: draining: asked by an operator",
        "3: serving: the drain was lifted",
    ]


def test_a_backend_that_fell_while_draining_is_ejected_when_the_drain_is_lifted() -> None:
    talk = (
        serving().at(1.0, DrainAsked(why="upgrade")).at(2.0, REFUSED, REFUSED, REFUSED, REFUSED).at(3.0, DrainLifted())
    )
    assert talk.told[-1] == "3: ejected: connection refused when the drain was lifted"


def test_a_backend_never_probed_is_not_trusted_when_its_drain_is_lifted() -> None:
    talk = Dialogue().at(1.0, DrainAsked(why="upgrade")).at(2.0, DrainLifted())
    assert talk.told[-1] == "2: ejected: not probed yet when the drain was lifted"


def test_draining_twice_and_lifting_what_does_not_drain_change_nothing_and_say_so() -> None:
    talk = serving()
    lifted = step(talk.health, DrainLifted(), policy=talk.policy, now=1.0)
    assert (lifted.state, lifted.actions, lifted.reason) == (talk.health, (), "not draining but serving")
    talk.at(1.0, DrainAsked(why="upgrade"))
    again = step(talk.health, DrainAsked(why="upgrade"), policy=talk.policy, now=2.0)
    assert (again.state, again.actions, again.reason) == (talk.health, (), "cannot drain a backend that is draining")


def test_probes_come_faster_while_something_is_wrong() -> None:
    policy = HealthPolicy(period_s=2.0, suspect_s=0.5)
    talk = Dialogue(policy=policy)
    periods = [probe_period_s(talk.health, policy)]
    for now, event in [(0.0, OK), (2.0, TIMEOUT), (4.0, OK), (6.0, REFUSED), (6.5, REFUSED), (7.0, REFUSED), (7.5, OK)]:
        talk.at(now, event)
        periods.append(probe_period_s(talk.health, policy))
    assert periods == [0.5, 2.0, 0.5, 2.0, 0.5, 0.5, 0.5, 2.0]


# --- beginning to serve, and what may not be ejected ---


def test_what_served_before_anybody_looked_is_not_new() -> None:
    talk = Dialogue(health=begin(0.0, fresh=False)).at(0.1, OK)
    assert talk.health.serving_since == ALWAYS


@pytest.mark.parametrize("away", [REFUSED, TIMEOUT, ILL])
def test_whoever_comes_back_is_new_since_then(away: Probed) -> None:
    talk = Dialogue(health=begin(0.0, fresh=False)).at(0.1, OK).at(5.0, away, away, away).at(30.0, OK)
    assert (talk.state, talk.health.serving_since) == (BackendState.SERVING, 30.0)


def test_a_backend_that_is_added_later_is_new() -> None:
    assert Dialogue(health=begin(50.0)).at(51.0, OK).health.serving_since == 51.0


def test_a_drain_alone_makes_nobody_new_and_a_restart_within_it_does() -> None:
    talk = Dialogue(health=begin(0.0, fresh=False)).at(0.1, OK)
    talk.at(1.0, DrainAsked(why="upgrade")).at(9.0, DrainLifted())
    assert talk.health.serving_since == ALWAYS
    talk.at(10.0, DrainAsked(why="upgrade")).at(11.0, REFUSED).at(40.0, OK).at(41.0, DrainLifted())
    assert talk.health.serving_since == 41.0
    talk.at(50.0, DrainAsked(why="upgrade")).at(60.0, Restarted(at=59.0)).at(61.0, DrainLifted())
    assert talk.health.serving_since == 61.0


def test_a_restart_that_no_probe_saw_makes_it_new_while_it_serves() -> None:
    talk = serving().at(10.0, Restarted(at=9.5))
    assert (talk.state, talk.health.serving_since, talk.told) == (BackendState.SERVING, 9.5, [])


def full() -> Dialogue:
    """A backend of whose pool no more may be ejected for failing requests."""
    talk = serving()
    talk.may_eject = False
    return talk


def test_what_may_not_be_ejected_serves_on_and_its_reason_says_so_once() -> None:
    talk = full().fail(1.0, "backend_died", times=5)
    assert talk.state is BackendState.SERVING
    reason = "serving although 5 of the last 5 requests failed, the last with backend_died: no more of the pool may be"
    assert talk.told == [f"1: {reason} ejected for that"]
    talk.fail(1.5, "backend_garbled", times=3)
    assert len(talk.told) == 1
    assert talk.health.reason.startswith("serving although 8 of the last 8 requests failed, the last with")
    assert talk.asked_to_probe == [1.0] * 5, "lost connections are looked into all the same"


def test_it_is_ejected_as_soon_as_it_may_be() -> None:
    talk = full().fail(1.0, "backend_error", times=5)
    talk.may_eject = True
    assert talk.fail(2.0, "backend_error").state is BackendState.EJECTED
    assert talk.health.by_requests
    assert not talk.health.kept


def test_it_serves_without_a_remark_when_its_requests_end_well_again() -> None:
    talk = full().fail(1.0, "backend_error", times=5).at(2.0, RequestsSucceeded(count=4))
    assert talk.health.kept
    talk.at(2.5, RequestsSucceeded(count=2))
    assert (talk.health.kept, talk.health.reason) == (False, "serving: requests end well again")
    assert len(talk.fail(3.0, "backend_error", times=9).told) == 2


def test_nor_with_one_when_there_were_none_for_a_while() -> None:
    talk = full().fail(1.0, "backend_error", times=5).at(3.0, OK)
    assert talk.health.kept
    talk.at(11.5, OK)
    assert talk.health.reason == "serving: requests end well again"


def test_probes_eject_whatever_may_be() -> None:
    assert full().at(1.0, REFUSED, REFUSED, REFUSED).state is BackendState.EJECTED


def test_who_was_ejected_for_its_requests_and_is_then_found_gone_is_out_by_its_probes() -> None:
    talk = serving().fail(1.0, "backend_died", times=5)
    assert talk.health.by_requests
    assert not talk.at(1.2, REFUSED).health.by_requests


def test_an_engine_that_says_that_it_is_dead_is_probed_at_once() -> None:
    talk = serving().fail(1.0, "engine_dead")
    assert (talk.asked_to_probe, talk.health.tally.all_failed) == ([1.0], 0)
