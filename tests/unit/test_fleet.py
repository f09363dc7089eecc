"""The fleet: states, models, what workers are told and when that changes."""

from __future__ import annotations

import pytest

from gateway.core.routing.backend import BackendState
from gateway.core.routing.evidence import DrainAsked, DrainLifted
from gateway.core.routing.notice import PoolChange
from gateway.core.routing.reading import EngineReading
from gateway.core.routing.snapshot import TimerPolicy
from gateway.fleet import Fleet, Remembered
from gateway.settings import health_policy
from tests.fakes.fleets import GOOD, REFUSED, SLOW, backend, cards, fleet, pool, runtime


def states(owner: Fleet) -> dict[str, str]:
    return {view.name: view.state.value for view in owner.snapshot().backends}


def serving_fleet() -> Fleet:
    owner = fleet(pool("p", "a", "b"))
    for name in "ab":
        owner.discovered(name, cards("m"), version="1")
        owner.notice(name, GOOD, now=1.0)
    return owner


# --- the snapshot ---


def test_a_snapshot_holds_what_workers_need() -> None:
    owner = fleet(
        pool("p", backend("a", url="https://h:1", api_key_env="KEY", tls_ca="/ca.pem"), models=("m",)),
        timers={"stall_s": 7.0},
    )
    owner.discovered("a", cards("m", "x"), version="1")
    owner.notice("a", GOOD, now=1.0)
    snapshot = owner.snapshot()
    (view,) = snapshot.backends
    assert (view.name, view.pool, view.url, view.api_key_env, view.tls_ca) == (
        "a",
        "p",
        "https://h:1",
        "KEY",
        "/ca.pem",
    )
    assert (view.state, view.models) == (BackendState.SERVING, ("m", "x"))
    assert [(it.name, it.models) for it in snapshot.pools] == [("p", ("m",))]
    assert [card.id for card in snapshot.cards] == ["m"], "a pool that names its models shows no others"
    assert snapshot.policy.timers == TimerPolicy(stall_s=7.0)


def test_the_generation_grows_only_when_something_changed() -> None:
    owner = serving_fleet()
    first = owner.snapshot()
    owner.probed("a", now=2.0)
    owner.notice("a", GOOD, now=2.0)
    owner.discovered("a", cards("m", stamp=99), version="1")
    owner.read("a", EngineReading(read_at=2.0, generation_tokens=5.0))
    owner.configure(owner.runtime, now=2.0)
    assert owner.snapshot() is first
    for now in (3.0, 3.5, 4.0):
        owner.notice("b", REFUSED, now=now)
    assert owner.snapshot().generation == first.generation + 1


def test_a_change_that_is_taken_back_before_anybody_looked_is_none() -> None:
    owner = serving_fleet()
    before = owner.snapshot()
    owner.notice("a", DrainAsked(why="x"), now=2.0)
    owner.notice("a", DrainLifted(), now=2.0)
    assert owner.snapshot() is before


def test_a_draining_backend_stays_in_the_snapshot() -> None:
    owner = serving_fleet()
    owner.notice("a", DrainAsked(why="asked"), now=2.0)
    assert states(owner) == {"a": "draining", "b": "serving"}


def test_of_equal_models_clients_see_the_card_of_the_first_backend() -> None:
    owner = fleet(pool("p", "a", "b"))
    owner.discovered("b", cards("m", "lora", stamp=2), version="1")
    owner.discovered("a", cards("m", stamp=1), version="1")
    assert owner.snapshot().cards == (*cards("m", stamp=1), *cards("lora", stamp=2))


def test_generations_go_on_from_where_the_last_life_ended() -> None:
    owner = Fleet(runtime(pool("p", "a")), generation=41, now=0.0)
    assert owner.snapshot().generation == 42


# --- news ---


def test_a_changed_state_is_told_with_its_reason_and_the_pool_that_fell_with_all_reasons() -> None:
    owner = serving_fleet()
    for now in (2.0, 2.6):
        assert owner.notice("a", REFUSED, now=now).states == ()
    (change,) = owner.notice("a", REFUSED, now=3.2).states
    assert (change.backend, change.pool, change.was, change.state) == (
        "a",
        "p",
        BackendState.SERVING,
        BackendState.EJECTED,
    )
    assert change.reason == "ejected: connection refused 3 times in 1.2 s"
    owner.notice("b", SLOW, now=4.0)
    owner.notice("b", SLOW, now=6.0)
    assert owner.notice("b", SLOW, now=8.0).pools == (
        PoolChange(
            pool="p",
            serving=0,
            reason="none of 2 serves: a ejected: connection refused 3 times in 1.2 s; "
            "b ejected: no answer in time 3 times in 4.0 s",
        ),
    )


def test_a_pool_that_serves_again_is_told_once_with_how_long_it_did_not() -> None:
    owner = fleet(pool("p", "a", "b"))
    owner.notice("a", REFUSED, now=1.0)
    assert owner.notice("b", REFUSED, now=1.5).pools[0].serving == 0
    assert owner.notice("a", GOOD, now=4.0).pools == (PoolChange(pool="p", serving=1, after_s=2.5),)
    assert owner.notice("b", GOOD, now=5.0).pools == ()


def test_a_pool_is_not_called_down_while_a_backend_is_not_yet_known() -> None:
    owner = fleet(pool("p", "a", "b"))
    assert owner.notice("a", REFUSED, now=1.0).pools == ()


def test_news_of_a_backend_that_left_changes_nothing() -> None:
    owner = serving_fleet()
    before = owner.snapshot()
    notice = owner.notice("gone", GOOD, now=1.0)
    assert (notice.states, notice.pools, notice.probe_now) == ((), (), False)
    owner.probed("gone", now=1.0)
    assert owner.discovered("gone", cards("x"), version="") is False
    assert owner.read("gone", None) is None
    assert owner.state("gone") is None
    assert owner.probe_period_s("gone") == 2.0
    assert owner.snapshot() is before


def test_other_models_and_another_version_are_news_and_new_stamps_are_not() -> None:
    owner = fleet(pool("p", "a"))
    assert owner.discovered("a", cards("m"), version="1")
    assert not owner.discovered("a", cards("m", stamp=2), version="1")
    assert owner.discovered("a", cards("m", stamp=2), version="2")
    assert owner.discovered("a", cards("n"), version="2")


# --- numbers ---


def reading(read_at: float, tokens: float) -> EngineReading:
    return EngineReading(read_at=read_at, generation_tokens=tokens, running=2.0, waiting=1.0)


def test_an_engine_whose_counter_fell_has_restarted_even_if_a_reading_was_missed() -> None:
    owner = fleet(pool("p", "a"))
    assert owner.read("a", reading(1.0, 1000.0)) is None
    assert owner.read("a", None) is None
    before, after = owner.read("a", reading(5.0, 10.0)) or (None, None)
    assert (before, after) == (reading(1.0, 1000.0), reading(5.0, 10.0))
    assert owner.read("a", reading(7.0, 20.0)) is None


def test_reports_tell_numbers_rate_and_times_of_day() -> None:
    owner = serving_fleet()
    owner.read("a", reading(1.0, 100.0))
    owner.read("a", reading(3.0, 260.0))
    owner.probed("a", now=4.0)
    first, second = owner.reports(in_flight={"a": 2}, requests={"a": 9}, now=10.0, wall=1010.0)
    assert (first.name, first.state, first.reason) == ("a", BackendState.SERVING, "serving: /health answered 200")
    assert (first.since_wall, first.last_probe_wall) == (1001.0, 1004.0)
    assert (first.generation_tokens, first.generation_tps) == (260.0, 80.0)
    assert (first.engine_running, first.engine_waiting) == (2.0, 1.0)
    assert (first.in_flight, first.requests_total, first.models, first.version) == (2, 9, ("m",), "1")
    assert (second.in_flight, second.requests_total, second.generation_tokens, second.last_probe_wall) == (
        0,
        0,
        None,
        None,
    )
    owner.read("a", None)
    assert owner.reports(in_flight={}, requests={}, now=10.0, wall=1010.0)[0].generation_tps is None


def test_pools_are_reported_with_what_serves_and_the_models_that_their_backends_have() -> None:
    owner = fleet(pool("p", "a", "b", min_available=2), pool("q", "c", models=("named",)))
    owner.discovered("a", cards("m", "n"), version="")
    owner.discovered("b", cards("n"), version="")
    owner.notice("a", GOOD, now=1.0)
    first, second = owner.pools()
    assert (first.name, first.models, first.serving, first.backends, first.min_available) == ("p", ("m", "n"), 1, 2, 2)
    assert (second.models, second.serving) == (("named",), 0)


def test_a_model_that_a_pool_names_and_no_backend_reports_is_reported_so() -> None:
    owner = fleet(pool("p", "a", models=("m", "typo")))
    owner.discovered("a", cards("m", "n"), version="")
    assert owner.pools()[0].unreported == ()
    owner.notice("a", GOOD, now=1.0)
    assert owner.pools()[0].unreported == ("typo",)


# --- configuration ---


def test_a_backend_that_stays_as_it_is_keeps_its_state_and_models() -> None:
    owner = serving_fleet()
    owner.configure(runtime(pool("p", "a", "c", models=("m",))), now=5.0)
    assert states(owner) == {"a": "serving", "c": "unknown"}
    assert [view.models for view in owner.snapshot().backends] == [("m",), ()]


@pytest.mark.parametrize("changed", [{"url": "http://127.0.0.1:9"}, {"api_key_env": "K"}, {"tls_ca": "/x.pem"}])
def test_a_backend_that_is_configured_anew_begins_anew_but_its_models_are_expected_to_stay(
    changed: dict[str, str],
) -> None:
    owner = serving_fleet()
    owner.configure(runtime(pool("p", backend("a", **changed), "b")), now=5.0)
    assert states(owner) == {"a": "unknown", "b": "serving"}
    assert owner.snapshot().backends[0].models == ("m",)


def test_a_backend_that_moves_to_another_pool_begins_anew() -> None:
    owner = serving_fleet()
    owner.configure(runtime(pool("p", "b"), pool("q", "a")), now=5.0)
    assert states(owner) == {"b": "serving", "a": "unknown"}
    assert owner.snapshot().backends[1].models == ()


def test_a_pool_whose_backends_are_all_replaced_is_expected_to_serve_the_same_models_until_a_probe_tells() -> None:
    owner = serving_fleet()
    owner.configure(runtime(pool("p", "c", "d"), pool("q", "e")), now=2.0)
    models = {view.name: view.models for view in owner.snapshot().backends}
    assert models == {"c": ("m",), "d": ("m",), "e": ()}
    owner.discovered("c", cards("n"), version="1")
    assert {view.name: view.models for view in owner.snapshot().backends}["c"] == ("n",)


def test_a_backend_beside_one_whose_models_are_known_inherits_nothing() -> None:
    owner = serving_fleet()
    owner.configure(runtime(pool("p", "a", "c")), now=2.0)
    assert {view.name: view.models for view in owner.snapshot().backends} == {"a": ("m",), "c": ()}


def test_removing_the_last_serving_backend_says_that_the_pool_is_down() -> None:
    owner = serving_fleet()
    for now in (2.0, 2.5, 3.0):
        owner.notice("b", REFUSED, now=now)
    notice = owner.configure(runtime(pool("p", "b")), now=5.0)
    assert [(change.pool, change.serving) for change in notice.pools] == [("p", 0)]


def test_a_pool_that_left_while_down_is_forgotten() -> None:
    owner = fleet(pool("p", "a"), pool("q", "b"))
    owner.notice("b", REFUSED, now=1.0)
    owner.configure(runtime(pool("p", "a")), now=2.0)
    notice = owner.configure(runtime(pool("p", "a"), pool("q", "b")), now=3.0)
    assert notice.pools == ()
    assert owner.notice("b", GOOD, now=4.0).pools == ()


def test_policies_come_from_the_configuration() -> None:
    probes = {"health_s": 0.2, "fall": 5, "rise": 2}
    policy = health_policy(runtime(pool("p", "a"), probes=probes))
    assert (policy.fall, policy.rise, policy.period_s, policy.suspect_s) == (5, 2, 0.2, 0.2)
    owner = fleet(pool("p", "a"), probes={"rise": 2})
    owner.notice("a", GOOD, now=1.0)
    assert states(owner) == {"a": "unknown"}
    assert owner.probe_period_s("a") == 0.5


def test_configs_are_told_by_name() -> None:
    assert list(fleet(pool("p", "a", "b")).configs()) == ["a", "b"]


# --- over lives ---


def test_models_are_remembered_for_the_same_backend_at_the_same_place() -> None:
    left = serving_fleet().remember()
    owner = fleet(pool("p", "a", backend("b", url="http://127.0.0.1:9")), remembered=left)
    assert states(owner) == {"a": "unknown", "b": "unknown"}
    assert [view.models for view in owner.snapshot().backends] == [("m",), ()]


def test_only_what_is_known_is_remembered() -> None:
    owner = fleet(pool("p", "a", "b"))
    owner.discovered("b", cards("m"), version="")
    assert owner.remember() == (Remembered(name="b", url="http://127.0.0.1:8002", cards=cards("m")),)
