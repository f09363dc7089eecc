"""The rule for tags in text, by example; any cut of any text is a property test."""

from __future__ import annotations

import pytest

from gateway.core.stream.delivery.mode import Channel, ThinkTags
from gateway.core.stream.delivery.split import TagSplitter


def split(*parts: str, opened: bool = False) -> tuple[str, str]:
    """Reasoning and content."""
    splitter = TagSplitter(ThinkTags(opened=opened))
    pieces = [piece for part in parts for piece in splitter.feed(part)] + splitter.flush()
    return tuple("".join(text for kind, text in pieces if kind is channel) for channel in list(Channel)[:2])  # type: ignore[return-value]


@pytest.mark.parametrize(
    "text, opened, found",
    [
        ("<think>why</think>so", False, ("why", "so")),
        ("no tags", False, ("", "no tags")),
        ("before <think>why</think> after", False, ("why", "before  after")),
        ("<think>a</think>b<think>c</think>d", False, ("ac", "bd")),
        ("<think>a<think>b</think>c</think>d", False, ("a<think>b</think>c", "d")),
        ("<think>never closed", False, ("never closed", "")),
        ("closes nothing</think>so", False, ("", "closes nothing</think>so")),
        ("why</think>so", True, ("why", "so")),
        ("\n <think>why</think>so", True, ("\n why", "so")),
        ("why <think>a</think> b</think>so", True, ("why <think>a</think> b", "so")),
        ("a < b <thin", False, ("", "a < b <thin")),
        ("<think>a </thin", False, ("a </thin", "")),
        ("<THINK>a</THINK>", False, ("", "<THINK>a</THINK>")),
        ("", True, ("", "")),
    ],
)
def test_text_is_split_by_the_rule(text: str, opened: bool, found: tuple[str, str]) -> None:
    assert split(text, opened=opened) == found
    assert split(*text, opened=opened) == found, "character by character"


def test_only_what_may_become_a_tag_waits() -> None:
    splitter = TagSplitter(ThinkTags())
    assert splitter.feed("a <thi") == [(Channel.CONTENT, "a ")]
    assert splitter.held == "<thi"
    assert splitter.feed("s is") == [(Channel.CONTENT, "<this is")]
    assert splitter.feed("</think") == [(Channel.CONTENT, "</think")], "nothing is open that it could close"
    assert splitter.feed("<think>") == []
    assert splitter.held == ""
    assert splitter.feed("</think") == []
    assert splitter.held == "</think"
