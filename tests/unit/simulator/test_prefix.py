"""Keys of a prompt's blocks: one a whole block, each made from all that is before it."""

from __future__ import annotations

import pytest

from gateway.simulator.prefix import block_keys, prompt_keys


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


WORDS = [f"w{at}" for at in range(40)]


def test_a_prompt_has_a_key_for_each_whole_block_of_its_tokens_the_template_included() -> None:
    assert len(prompt_keys(WORDS, tokens=48, tool="", salt="")) == 3
    assert len(prompt_keys(WORDS, tokens=47, tool="", salt="")) == 2


def test_a_conversation_begins_with_the_keys_of_its_beginning() -> None:
    first = prompt_keys(WORDS, tokens=48, tool="", salt="")
    later = prompt_keys([*WORDS, "answer", "more"], tokens=66, tool="", salt="")
    assert first[:2] == later[:2]
    assert first[2] != later[2]


@pytest.mark.parametrize("other", [{"tool": "f", "salt": ""}, {"tool": "", "salt": "s"}])
def test_another_tool_or_salt_is_another_prompt(other: dict[str, str]) -> None:
    plain = prompt_keys(WORDS, tokens=48, tool="", salt="")
    assert set(plain).isdisjoint(prompt_keys(WORDS, tokens=48, **other))


def test_a_prompt_without_words_has_nothing_in_common_with_others() -> None:
    assert prompt_keys([], tokens=48, tool="", salt="") == ()
