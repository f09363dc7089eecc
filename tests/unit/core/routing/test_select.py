"""Which pool and which backend a request goes to."""

from __future__ import annotations

import pytest

from gateway.core.routing.backend import BackendState
from gateway.core.routing.select import candidates, least_in_flight, pool_for
from gateway.core.routing.snapshot import BackendView, PoolView, Snapshot
from gateway.errors import NothingServing, UnknownModel

SERVING, UNKNOWN, EJECTED = BackendState.SERVING, BackendState.UNKNOWN, BackendState.EJECTED


def backend(name: str, pool: str = "p", *, state: BackendState = SERVING, models: tuple[str, ...] = ()) -> BackendView:
    return BackendView(name=name, pool=pool, url=f"http://127.0.0.1/{name}", state=state, models=models)


def snapshot(pools: tuple[PoolView, ...], *backends: BackendView) -> Snapshot:
    return Snapshot(generation=1, pools=pools, backends=backends)


def test_a_pool_that_names_models_serves_just_those() -> None:
    fleet = snapshot((PoolView(name="p", models=("alias",)), PoolView(name="q")), backend("a", models=("real",)))
    assert pool_for(fleet, "alias") == "p"
    with pytest.raises(NothingServing):
        pool_for(fleet, "real")


def test_a_pool_without_names_serves_what_its_backends_report() -> None:
    fleet = snapshot(
        (PoolView(name="p"), PoolView(name="q")), backend("a", models=("x",)), backend("b", "q", models=("y",))
    )
    assert (pool_for(fleet, "x"), pool_for(fleet, "y")) == ("p", "q")
    with pytest.raises(UnknownModel) as caught:
        pool_for(fleet, "z" * 500)
    assert len(caught.value.message) < 200


def test_no_model_is_served_by_the_only_pool() -> None:
    one = snapshot((PoolView(name="p"),), backend("a", models=("x",)))
    two = snapshot((PoolView(name="p"), PoolView(name="q", models=("y",))), backend("a", models=("x",)))
    assert pool_for(one, "") == "p"
    with pytest.raises(UnknownModel, match="name a model"):
        pool_for(two, "")
    silent = snapshot((PoolView(name="p"), PoolView(name="q")), backend("a", models=("x",)))
    with pytest.raises(UnknownModel, match="name a model"):
        pool_for(silent, "")


def test_before_any_backend_has_spoken_the_answer_is_later_not_never() -> None:
    with pytest.raises(NothingServing) as caught:
        pool_for(snapshot((PoolView(name="p"),), backend("a")), "x")
    assert caught.value.retry_after_s == 2


def names(fleet: Snapshot, model: str = "x", *, tried: tuple[str, ...] = ()) -> list[str]:
    return [b.name for b in candidates(fleet, "p", model, tried=tried)]


def test_serving_backends_of_the_pool_that_have_the_model_and_were_not_tried() -> None:
    fleet = snapshot(
        (PoolView(name="p"), PoolView(name="q")),
        backend("a", models=("x",)),
        backend("b", models=("y",)),
        backend("c"),
        backend("d", "q", models=("x",)),
        backend("e", state=EJECTED, models=("x",)),
        backend("f", state=UNKNOWN, models=("x",)),
    )
    assert names(fleet) == ["a", "c"]
    assert names(fleet, "") == ["a", "b", "c"]
    assert names(fleet, tried=("a", "c")) == ["f"], "not yet looked at is better than nothing"
    assert names(fleet, tried=("a", "c", "f")) == []


def test_the_fewest_in_flight_win_and_ties_go_round() -> None:
    a, b, c = backend("a"), backend("b"), backend("c")
    loads = {"a": 2, "b": 1, "c": 1}
    chosen = [least_in_flight([a, b, c], loads.__getitem__, turn=turn) for turn in range(4)]
    assert [x.name for x in chosen if x is not None] == ["b", "c", "b", "c"]
    assert least_in_flight([a], loads.__getitem__, turn=7) is a
    assert least_in_flight([], loads.__getitem__, turn=0) is None
