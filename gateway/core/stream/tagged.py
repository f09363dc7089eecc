"""Reads chat and completions whose reasoning stands in the text, between tags, because the engine has no parser.

Inside the tap, instead of the usual reader, where the settings say so.  The engine counts no reasoning then, so the
split of its total is by length and flagged as estimated; tags belong to neither channel.
"""

from __future__ import annotations

from msgspec import Raw, Struct, json

from gateway.core.stream.answer import Answer
from gateway.core.stream.chat import Delta, tool_bytes
from gateway.core.stream.chunk import ABSENT, utf8_bytes
from gateway.core.stream.delivery.mode import Channel, ThinkTags
from gateway.core.stream.delivery.split import TagSplitter


class _Choice(Struct, gc=False):
    index: int = 0
    delta: Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Chunk(Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: Raw = ABSENT
    metrics: Raw = ABSENT
    error: Raw = ABSENT


class TaggedReader:
    """Writes what events mean into one answer; both dialects, since an event has either a delta or a text."""

    __slots__ = ("_answer", "_decode", "_splitters", "_tags", "_timeline")

    def __init__(self, answer: Answer, tags: ThinkTags) -> None:
        self._answer = answer
        self._timeline = answer.timeline
        self._decode = json.Decoder(_Chunk).decode
        self._tags = tags
        self._splitters: dict[int, TagSplitter] = {}

    def read(self, data: bytes, now: float, name: str) -> None:  # noqa: ARG002  (events of these dialects have none)
        """Take in one event that came at ``now``."""
        answer, timeline = self._answer, self._timeline
        if data[:6] == b"[DONE]":
            answer.done = True
            return
        chunk = self._decode(data)
        reasoning = content = tool = 0
        for choice in chunk.choices or ():
            if choice.index not in answer.choices:
                answer.begin(choice.index)
                timeline.begin(now)
            delta = choice.delta or Delta()
            thought, said = self._lengths(choice.index, choice.text or delta.content or "", over=choice.finish_reason)
            reasoning += thought + utf8_bytes(delta.reasoning or delta.reasoning_content or "")
            content += said
            if delta.tool_calls:
                answer.tool_seen = True
                tool += tool_bytes(delta.tool_calls)
            if choice.finish_reason:
                answer.finish(choice.index, choice.finish_reason)
                timeline.finish = now
        if reasoning or content or tool:
            timeline.chunk(now, reasoning=reasoning, content=content, tool=tool)
        if chunk.usage is not ABSENT or chunk.metrics is not ABSENT or chunk.error is not ABSENT:
            answer.take(usage=chunk.usage, metrics=chunk.metrics, error=chunk.error, whole=not chunk.choices)

    def _lengths(self, index: int, text: str, *, over: str | None) -> tuple[int, int]:
        splitter = self._splitters.get(index)
        if splitter is None:
            if index not in self._answer.choices:
                return 0, utf8_bytes(text)  # one of more choices than are followed
            splitter = self._splitters[index] = TagSplitter(self._tags)
        return _measured(splitter, text, over=bool(over))


def tagged_bytes(text: str, tags: ThinkTags) -> tuple[int, int]:
    """The UTF-8 lengths of reasoning and content in a whole text."""
    return _measured(TagSplitter(tags), text, over=True)


def _measured(splitter: TagSplitter, text: str, *, over: bool) -> tuple[int, int]:
    lengths = {Channel.REASONING: 0, Channel.CONTENT: 0}
    for channel, piece in (*splitter.feed(text), *(splitter.flush() if over else ())):
        lengths[channel] += utf8_bytes(piece)
    return lengths[Channel.REASONING], lengths[Channel.CONTENT]
