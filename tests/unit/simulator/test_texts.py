from __future__ import annotations

import json

from gateway.simulator.request import Channel, Token
from gateway.simulator.texts import StopWatch, ToolText, split

CALL = '{"name": "f", "arguments": {"a": {"b": 1}}}'


def token(text: str, channel: Channel) -> Token:
    return Token(text, channel, 1)


def test_a_call_is_taken_apart_wherever_it_is_cut() -> None:
    for size in range(1, len(CALL) + 1):
        tool = ToolText("id", "f")
        pieces = [CALL[at : at + size] for at in range(0, len(CALL), size)]
        named, arguments = zip(*[tool.feed(piece) for piece in pieces], strict=True)
        assert sum(named) == 1
        assert json.loads(tool.arguments or "") == {"a": {"b": 1}}
        assert "".join(arguments) + tool.held == tool.arguments


def test_a_call_without_arguments_yet_says_nothing() -> None:
    tool = ToolText("id", "f")
    assert tool.feed('{"name": "f"') == (False, "")
    assert tool.arguments is None


def test_what_may_begin_a_stop_string_is_held_back() -> None:
    watch = StopWatch(["END"])
    assert watch.feed("one E", is_last=False) == ("one", None)
    assert watch.feed("N", is_last=False) == (" ", None)
    assert watch.feed("D more", is_last=False) == ("", "END")


def test_what_was_held_back_comes_at_the_end() -> None:
    watch = StopWatch(["END"])
    watch.feed("xE", is_last=False)
    assert watch.feed("", is_last=True) == ("xE", None)


def test_the_first_of_several_stop_strings_counts() -> None:
    assert StopWatch(["b", "a"]).feed("xab", is_last=False) == ("x", "a")


def test_channels_are_split_and_markers_have_no_text() -> None:
    tokens = [
        token("<think>", Channel.MARKER), token("r", Channel.REASONING), token("c", Channel.CONTENT),
        token("{", Channel.TOOL),
    ]  # fmt: skip
    assert split(tokens, parses_reasoning=True) == ("r", "c", "{")
    assert split(tokens, parses_reasoning=False) == ("", "rc", "{")
