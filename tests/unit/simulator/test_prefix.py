"""Keys of a prompt's blocks: one a whole block, each made from all that is before it."""

from __future__ import annotations

from gateway.simulator.prefix import block_keys


def test_only_whole_blocks_have_a_key() -> None:
    assert block_keys(["a"] * 15) == ()
    assert len(block_keys(["a"] * 47)) == 2


def test_equal_blocks_at_different_places_have_different_keys() -> None:
    first, second = block_keys(["a"] * 32)
    assert first != second


def test_a_word_changes_its_block_and_all_that_follow() -> None:
    words = [f"w{at}" for at in range(64)]
    before, after = block_keys(words), block_keys([*words[:20], "other", *words[21:]])
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, False, False]


def test_a_salt_changes_every_key() -> None:
    plain, salted = block_keys(["a"] * 32), block_keys(["a"] * 32, salt="s")
    assert set(plain).isdisjoint(salted)
