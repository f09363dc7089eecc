"""LoRA adapters in the snapshot: those that are wanted are served where they are loaded, others are not seen."""

from __future__ import annotations

import pytest

from gateway.core.routing.select import candidates, pool_for
from gateway.errors import UnknownModel
from gateway.fleet import Fleet
from tests.fakes.fleets import GOOD, cards, fleet, pool

LORA = [{"name": "poet", "path": "/p"}, {"name": "other", "path": "/o"}]


def two(**given: object) -> Fleet:
    """Backend a has both adapters loaded, b has none; nobody has said anything about them."""
    owner = fleet(pool("p", "a", "b", lora=LORA, **given))
    owner.discovered("a", cards("tiny", "poet", "other"), version="1")
    owner.discovered("b", cards("tiny"), version="1")
    for name in "ab":
        owner.notice(name, GOOD, now=1.0)
    return owner


@pytest.mark.parametrize("models", [(), ("tiny",)])
def test_an_adapter_is_seen_where_it_is_loaded_once_it_is_wanted(models: tuple[str, ...]) -> None:
    owner = two(models=models)
    before = owner.snapshot()
    assert [card.id for card in before.cards] == ["tiny"]
    assert [view.models for view in before.backends] == [("tiny",), ("tiny",)]
    with pytest.raises(UnknownModel):
        pool_for(before, "poet")
    owner.order_adapters({"p": {"poet": True}})
    after = owner.snapshot()
    assert after.generation == before.generation + 1
    assert [card.id for card in after.cards] == ["tiny", "poet"]
    assert pool_for(after, "poet") == "p"
    assert [view.name for view in candidates(after, "p", "poet", tried=())] == ["a"]
    with pytest.raises(UnknownModel):
        pool_for(after, "other")
    assert owner.known("a")[0] == cards("tiny", "poet", "other"), "operators see what there is"


def test_one_that_is_unloaded_is_gone_at_once_although_its_backend_still_reports_it() -> None:
    owner = two()
    owner.order_adapters({"p": {"poet": True}})
    owner.snapshot()
    owner.order_adapters({"p": {"poet": False}})
    with pytest.raises(UnknownModel):
        pool_for(owner.snapshot(), "poet")


def test_a_wanted_adapter_goes_to_no_backend_of_which_it_is_not_known_that_it_has_it() -> None:
    owner = fleet(pool("p", "a", lora=[{**LORA[0], "load": True}]))
    owner.notice("a", GOOD, now=1.0)  # it does not say its models
    snapshot = owner.snapshot()
    assert pool_for(snapshot, "poet") == "p"
    assert candidates(snapshot, "p", "poet", tried=()) == []
    assert [view.name for view in candidates(snapshot, "p", "tiny", tried=())] == ["a"]


def test_an_alias_may_stand_for_an_adapter() -> None:
    owner = two(models=("tiny",), aliases=[{"name": "poem", "model": "poet"}])
    assert "poem" not in [card.id for card in owner.snapshot().cards]
    owner.order_adapters({"p": {"poet": True}})
    assert [card.id for card in owner.snapshot().cards] == ["tiny", "poet", "poem"]


def test_orders_of_an_earlier_life_count_from_the_first_snapshot_on() -> None:
    configured = pool("p", "a", lora=LORA)
    owner = Fleet(fleet(configured).runtime, generation=0, now=0.0, orders={"p": {"poet": True}, "gone": {"x": True}})
    assert owner.snapshot().pools[0].adapters == ("poet",)
