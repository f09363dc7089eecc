"""The memory of who holds what: the latest, and not more of them than allowed."""

from __future__ import annotations

from gateway.core.routing.owners import OwnerMemory


def test_the_owner_of_what_was_noted_is_known() -> None:
    memory = OwnerMemory(10)
    memory.note("resp_1", "a")
    assert (memory.owner("resp_1"), memory.owner("resp_2")) == ("a", "")
    memory.note("resp_1", "b")
    assert (memory.owner("resp_1"), len(memory)) == ("b", 1)


def test_the_oldest_is_forgotten_first_and_one_that_is_noted_again_is_young() -> None:
    memory = OwnerMemory(3)
    for thing in ("1", "2", "3", "1", "4"):
        memory.note(thing, "a")
    assert [memory.owner(thing) for thing in "1234"] == ["a", "", "a", "a"]


def test_a_smaller_limit_holds_from_the_next_note_on() -> None:
    memory = OwnerMemory(100)
    for number in range(100):
        memory.note(str(number), "a")
    memory.limit = 2
    memory.note("x", "a")
    assert len(memory) == 2
    memory.limit = 0
    memory.note("y", "a")
    assert len(memory) == 0


def test_who_had_it_made_is_known_as_long_as_who_has_it() -> None:
    memory = OwnerMemory(2)
    memory.note("resp_1", "a", key_id="alice")
    memory.note("resp_2", "a")
    assert [memory.maker(it) for it in ("resp_1", "resp_2", "resp_3")] == ["alice", "", ""]
    memory.note("resp_3", "b", key_id="bob")
    assert [memory.maker(it) for it in ("resp_1", "resp_3")] == ["", "bob"]
