"""Blocks of keys and values: room is never negative, nothing is lost, the longest unused is forgotten first."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.simulator.kv_cache import BLOCK_TOKENS, Hold, KvCache
from gateway.simulator.prefix import block_keys


def words(blocks: int, of: str = "w") -> tuple[int, ...]:
    return block_keys([f"{of}{at}" for at in range(blocks * BLOCK_TOKENS)])


def admitted(cache: KvCache, keys: tuple[int, ...], tokens: int) -> tuple[Hold, int]:
    """A sequence that got its blocks and computed all of its context, and how many blocks it found."""
    hold, found = Hold(), cache.found(keys, tokens)
    assert cache.admit(hold, keys, context_tokens=tokens, found=found, forced=False)
    cache.offer(hold, keys, tokens)
    return hold, found


def test_a_context_takes_whole_blocks_and_gives_them_back() -> None:
    cache = KvCache(1600, caches=True)
    hold, found = admitted(cache, (), 33)
    assert (hold.blocks, found, cache.used) == (3, 0, 3)
    assert cache.usage() == 0.03
    cache.release(hold)
    assert (cache.used, cache.remembered()) == (0, 0)


def test_a_repeated_prompt_finds_its_blocks_but_never_its_last_token() -> None:
    cache = KvCache(1600, caches=True)
    first, _ = admitted(cache, words(4), 64)
    assert admitted(cache, words(4), 64)[1] == 3
    assert admitted(cache, words(4), 65)[1] == 4
    cache.release(first)


def test_a_shared_block_counts_once_and_stays_until_the_last_has_left() -> None:
    cache = KvCache(1600, caches=True)
    one, _ = admitted(cache, words(4), 70)
    two, found = admitted(cache, words(4), 70)
    assert (found, cache.used) == (4, 6)
    cache.release(one)
    assert cache.used == 5
    cache.release(two)
    assert (cache.used, cache.remembered()) == (0, 4)


def test_prompts_share_as_far_as_they_agree() -> None:
    cache = KvCache(1600, caches=True)
    admitted(cache, block_keys(["a"] * 32 + ["b"] * 32), 64)
    assert cache.found(block_keys(["a"] * 32 + ["c"] * 32), 64) == 2
    assert cache.found(block_keys(["a"] * 31 + ["b"] * 33), 64) == 1
    assert cache.found(block_keys(["x"] + ["a"] * 63), 64) == 0


def test_another_salt_shares_nothing() -> None:
    cache = KvCache(1600, caches=True)
    admitted(cache, block_keys(["a"] * 64, salt="mine"), 64)
    assert cache.found(block_keys(["a"] * 64), 64) == 0
    assert cache.found(block_keys(["a"] * 64, salt="mine"), 64) == 3


def test_without_caching_nothing_is_found() -> None:
    cache = KvCache(1600, caches=False)
    hold, _ = admitted(cache, words(4), 64)
    cache.release(hold)
    assert cache.found(words(4), 64) == 0
    assert cache.remembered() == 0


def test_the_longest_unused_prompt_is_forgotten_first_and_from_its_end() -> None:
    cache = KvCache(10 * BLOCK_TOKENS, caches=True)
    for of in ("old", "new"):
        hold, _ = admitted(cache, words(4, of), 64)
        cache.release(hold)
    big, _ = admitted(cache, (), 5 * BLOCK_TOKENS)
    assert cache.found(words(4, "old"), 65) == 1
    assert cache.found(words(4, "new"), 65) == 4
    cache.release(big)


def test_looking_a_prompt_up_again_makes_it_the_last_used() -> None:
    cache = KvCache(10 * BLOCK_TOKENS, caches=True)
    for of in ("a", "b", "a"):
        hold, _ = admitted(cache, words(4, of), 65)
        cache.release(hold)
    admitted(cache, (), 6 * BLOCK_TOKENS)
    assert cache.found(words(4, "b"), 65) == 0
    assert cache.found(words(4, "a"), 65) == 4


def test_no_room_changes_nothing() -> None:
    cache = KvCache(4 * BLOCK_TOKENS, caches=True)
    hold, _ = admitted(cache, (), 3 * BLOCK_TOKENS)
    other = Hold()
    assert not cache.admit(other, (), context_tokens=2 * BLOCK_TOKENS, found=0, forced=False)
    assert not cache.grow(hold, tokens=5 * BLOCK_TOKENS, forced=False)
    assert (other.blocks, hold.blocks, cache.used) == (0, 3, 3)
    assert cache.grow(hold, tokens=4 * BLOCK_TOKENS, forced=False)
    assert cache.usage() == 1.0


def test_blocks_that_were_free_and_remembered_count_when_they_are_found() -> None:
    cache = KvCache(4 * BLOCK_TOKENS, caches=True)
    hold, _ = admitted(cache, words(2), 2 * BLOCK_TOKENS)
    cache.release(hold)
    admitted(cache, (), 2 * BLOCK_TOKENS)
    assert not cache.admit(Hold(), words(2), context_tokens=3 * BLOCK_TOKENS, found=2, forced=False)
    assert cache.used == 2


def test_one_that_is_alone_may_take_more_than_there_is() -> None:
    cache = KvCache(4 * BLOCK_TOKENS, caches=True)
    hold = Hold()
    assert cache.admit(hold, (), context_tokens=9 * BLOCK_TOKENS, found=0, forced=True)
    assert cache.usage() == 1.0
    cache.release(hold)
    assert cache.used == 0


@settings(max_examples=200, deadline=None)
@given(
    blocks=st.integers(1, 40),
    deeds=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(1, 200)), max_size=60),
)
def test_room_is_never_negative_and_all_of_it_comes_back(blocks: int, deeds: list[tuple[int, int, int]]) -> None:
    cache = KvCache(blocks * BLOCK_TOKENS, caches=True)
    holds: list[tuple[Hold, tuple[int, ...], int]] = []
    for deed, which, tokens in deeds:
        if deed == 0 or not holds:
            keys, hold = words(tokens // BLOCK_TOKENS, f"p{which}"), Hold()
            if cache.admit(hold, keys, context_tokens=tokens, found=cache.found(keys, tokens), forced=False):
                holds.append((hold, keys, tokens))
        elif deed == 1:
            hold, keys, context = holds[which % len(holds)]
            cache.offer(hold, keys, min(tokens, context))
        elif deed == 2:
            hold, keys, context = holds[which % len(holds)]
            cache.grow(hold, tokens=max(context, hold.blocks * BLOCK_TOKENS) + tokens % 20, forced=False)
        else:
            hold, *_ = holds.pop(which % len(holds))
            cache.release(hold)
        assert 0 <= cache.used <= cache.blocks
        assert cache.used + cache.remembered() <= cache.blocks
        assert cache.used <= sum(hold.blocks for hold, *_ in holds)
        assert all(len(hold.mine) <= hold.blocks for hold, *_ in holds)
    for hold, *_ in holds:
        cache.release(hold)
    assert cache.used == 0
