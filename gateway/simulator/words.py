"""The text of simulated answers: reasoning, content, tool calls, as tokens.

Pure; the words are fixed by the request's seed, so that the same prompt gets the same answer from every engine.
The kinds of answer are those of the small test model: ``count`` counts for ever, ``ponder`` thinks for long and
answers shortly, ``emoji`` writes characters of several tokens, anything else is a few sentences.
Must not know of time, batches or HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from gateway.simulator.request import Channel, SimRequest, Token

_FIRST_WORD = 1000  # numbers below are markers
_TEXT = (
    " the a this one some each step number answer question part value result case way thing side line first second "
    "next last small large same other short long clear likely so then now also only still again perhaps here is was "
    "gives needs takes makes holds shows follows means adds keeps looks and or but with from into over under of to "
    "for in on at by it we they which that simulated engine word token stream"
)
_WORDS = tuple(_TEXT.split())
_ENDS = (".", ".", ",", ".", "!", "?")
_EMOJI = "😀🚀🌍🎉🐍🧭🌊🔥"
_TOKENS_PER_EMOJI = 3
_GARBAGE = ("\ufffd", "!!!!", " ÿÿ", " 0x", "ĠĠ", " null", "}{", " aaaaaaaa")

THINK_OPEN = Token("<think>", Channel.MARKER, 1)
THINK_CLOSE = Token("</think>", Channel.MARKER, 2)
TOOL_OPEN = Token("<tool_call>", Channel.MARKER, 3)
TOOL_CLOSE = Token("</tool_call>", Channel.MARKER, 4)
END = Token("", Channel.MARKER, 0)


class Vocabulary:
    """Every word as one shared token a channel; owner: one engine.  Made once, read for ever."""

    __slots__ = ("_words",)

    def __init__(self) -> None:
        texts = [" " + word for word in _WORDS] + list(_ENDS) + list(_GARBAGE)
        self._words = {
            channel: tuple(Token(text, channel, _FIRST_WORD + texts.index(text)) for text in texts)
            for channel in (Channel.REASONING, Channel.CONTENT)
        }

    def sentences(self, channel: Channel, rng: Random) -> Iterator[Token]:
        """Words and full stops, for ever."""
        words = self._words[channel]
        plain, ends = words[: len(_WORDS)], words[len(_WORDS) : len(_WORDS) + len(_ENDS)]
        draw = rng.random
        while True:
            for _ in range(5 + int(draw() * 9)):
                yield plain[int(draw() * len(plain))]
            yield ends[int(draw() * len(ends))]

    def garbage(self, channel: Channel, rng: Random) -> Iterator[Token]:
        """What an engine with corrupt sums writes, for ever."""
        words = self._words[channel][-len(_GARBAGE) :]
        while True:
            yield words[int(rng.random() * len(words))]

    def spoilt(self, source: Iterator[Token], rng: Random) -> Iterator[Token]:
        """The rest of an answer when the sums have gone wrong: as long, thinking as long, and every word garbage."""
        wrong = {channel: self.garbage(channel, rng) for channel in self._words}
        for token in source:
            yield next(wrong[token.channel]) if token.channel in wrong else token


def counting(channel: Channel) -> Iterator[Token]:
    """`` 1``, `` 2``, ... for ever."""
    number = 0
    while True:
        number += 1
        yield Token(f" {number}", channel, _FIRST_WORD + 200 + number)


def emoji(channel: Channel, rng: Random) -> Iterator[Token]:
    """Characters of three tokens each, for ever; the text comes with the last of the three."""
    held = Token("", channel, 900)
    whole = tuple(Token(character, channel, 901 + at) for at, character in enumerate(_EMOJI))
    while True:
        for _ in range(_TOKENS_PER_EMOJI - 1):
            yield held
        yield whole[int(rng.random() * len(whole))]


def tool_call(name: str) -> Iterator[Token]:
    """One call of ``name`` with its markers."""
    yield TOOL_OPEN
    text = f'{{"name": "{name}", "arguments": {{"city": "Paris", "unit": "celsius"}}}}'
    for at in range(0, len(text), 4):
        yield Token(text[at : at + 4], Channel.TOOL, 300 + at)
    yield TOOL_CLOSE


def answer(
    request: SimRequest, vocabulary: Vocabulary, *, choice: int, reasoning_share: float, garbage: bool = False
) -> Iterator[Token]:
    """The tokens of one choice, to the end token; an answer that must not end goes on with content for ever.

    An answer of forced length thinks for ``reasoning_share`` of it; else the lengths are the answer's own.
    """
    rng = Random(f"{request.seed}/{choice}/{request.topic}")  # noqa: S311 - words, no secret
    thinking, visible = _lengths(request, rng, reasoning_share)
    count = 0
    if thinking:
        yield THINK_OPEN
        source = vocabulary.garbage(Channel.REASONING, rng) if garbage else vocabulary.sentences(Channel.REASONING, rng)
        for _ in range(thinking):
            yield next(source)
        yield THINK_CLOSE
        count = thinking + 2
    if request.tools and not request.ignore_eos:
        yield from tool_call(request.tools[0])
        yield END
        return
    content = _content(request.topic, vocabulary, rng, garbage=garbage)
    for _ in range(max(visible, request.min_tokens - count)):
        yield next(content)
    if request.ignore_eos:
        yield from content
    yield END


def _content(topic: str, vocabulary: Vocabulary, rng: Random, *, garbage: bool) -> Iterator[Token]:
    if garbage:
        return vocabulary.garbage(Channel.CONTENT, rng)
    if "count" in topic:
        return counting(Channel.CONTENT)
    if "emoji" in topic:
        return emoji(Channel.CONTENT, rng)
    return vocabulary.sentences(Channel.CONTENT, rng)


def _lengths(request: SimRequest, rng: Random, share: float) -> tuple[int, int]:
    """(tokens of thinking without markers, tokens of content)."""
    if share <= 0:
        return 0, _natural(request.topic, rng)
    if request.ignore_eos:
        return max(1, round(request.max_tokens * share) - 2), 0
    if "ponder" in request.topic:
        return 600 + int(rng.random() * 400), 20 + int(rng.random() * 20)
    total = _natural(request.topic, rng)
    return max(1, round(total * share)), max(1, round(total * (1 - share)))


def _natural(topic: str, rng: Random) -> int:
    if "count" in topic:
        return 100_000  # longer than anyone asks for: it ends at the limit
    return 200 + int(rng.random() * 400)
