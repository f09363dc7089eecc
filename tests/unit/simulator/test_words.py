"""The text of simulated answers."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import pytest

from gateway.simulator.request import Channel, SimRequest, Token
from gateway.simulator.words import Vocabulary, answer

VOCABULARY = Vocabulary()


def tokens(topic: str = "", *, share: float = 0.5, garbage: bool = False, most: int = 3000, **more: Any) -> list[Token]:
    request = SimRequest(prompt_tokens=1, max_tokens=512, topic=topic, **more)
    made = answer(request, VOCABULARY, choice=0, reasoning_share=share, garbage=garbage)
    return list(islice(made, most))


def text(made: list[Token], channel: Channel) -> str:
    return "".join(token.text for token in made if token.channel is channel)


def test_an_answer_thinks_then_speaks_then_ends() -> None:
    made = tokens(seed=4)
    channels = [token.channel for token in made]
    assert channels[0] is channels[-1] is Channel.MARKER
    assert channels.index(Channel.CONTENT) == channels.index(Channel.MARKER, 1) + 1
    assert 200 < len(made) < 620
    assert made[-1].text == ""


def test_the_same_seed_says_the_same_and_another_seed_or_choice_something_else() -> None:
    assert tokens(seed=1) == tokens(seed=1)
    assert tokens(seed=1) != tokens(seed=2)


def test_without_reasoning_there_are_no_marks() -> None:
    made = tokens(share=0)
    assert {token.channel for token in made[:-1]} == {Channel.CONTENT}


def test_counting_counts_for_as_long_as_anyone_asks() -> None:
    assert text(tokens("count please", share=0, most=5), Channel.CONTENT) == " 1 2 3 4 5"
    assert len(tokens("count please", share=0, most=50_000)) == 50_000


def test_pondering_thinks_long_and_answers_shortly() -> None:
    made = tokens("ponder please")
    thought = sum(token.channel is Channel.REASONING for token in made)
    assert thought >= 600
    assert len(made) - thought < 50


def test_characters_of_several_tokens_come_with_the_last_of_them() -> None:
    made = tokens("emoji", share=0, most=300)
    assert [bool(token.text) for token in made[:6]] == [False, False, True] * 2
    assert all(len(token.text.encode()) == 4 for token in made[2::3])


def test_a_tool_call_is_json_between_its_marks() -> None:
    made = tokens(tools=("get_weather", "other"))
    call = json.loads(text(made, Channel.TOOL))
    assert call["name"] == "get_weather"
    assert [token.text for token in made if token.channel is Channel.MARKER][-3:] == ["<tool_call>", "</tool_call>", ""]


def test_a_forced_length_has_its_share_and_never_ends() -> None:
    made = tokens(ignore_eos=True, tools=("get_weather",), most=2000)
    assert len(made) == 2000
    assert sum(token.channel is Channel.REASONING for token in made) == 254


def test_no_less_than_asked_for() -> None:
    assert len(tokens(min_tokens=900)) > 900


@pytest.mark.parametrize("topic", ["", "emoji", "count"])
def test_garbage_is_not_the_answer_of_a_sound_engine(topic: str) -> None:
    wrong, right = tokens(topic, garbage=True, seed=2, most=100), tokens(topic, seed=2, most=100)
    assert text(wrong, Channel.REASONING) != text(right, Channel.REASONING)
    assert text(tokens(topic, garbage=True, share=0, most=100), Channel.CONTENT).isascii() is False


def test_every_token_of_a_channel_has_its_own_number_by_text() -> None:
    numbers: dict[str, set[int]] = {}
    for token in tokens(seed=9):
        numbers.setdefault(token.text, set()).add(token.number)
    assert all(len(found) == 1 for found in numbers.values())
