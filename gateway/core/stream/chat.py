"""Reads events of `/v1/chat/completions` and `/v1/completions`: unnamed events, then `[DONE]`.

Inside the tap.  Decodes only the fields that are measured.  Reasoning comes as `reasoning` or `reasoning_content`
(an engine or gateway that sends both means the same text), completions have `text` instead of a delta, usage rides
on a last event without choices or, cumulative, on every event.  Raises what msgspec raises for unreadable data; the
tap counts it.
"""

from __future__ import annotations

from msgspec import Raw, Struct, json
from msgspec.structs import replace

from gateway.core.stream.answer import Answer
from gateway.core.stream.chunk import ABSENT, utf8_bytes
from gateway.core.stream.stencil import Stencil


class Function(Struct, gc=False):
    """A tool call's name and arguments, or a piece of them."""

    name: str | None = None
    arguments: str | None = None


class ToolCall(Struct, gc=False):
    """One tool call of a delta or message."""

    function: Function | None = None


class Delta(Struct, gc=False):
    """What one event adds to a message; also the shape of a whole message."""

    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None


class _ChatChoice(Struct, gc=False):
    index: int = 0
    delta: Delta | None = None
    finish_reason: str | None = None


class _ChatChunk(Struct, gc=False):
    choices: list[_ChatChoice] | None = None
    usage: Raw = ABSENT
    metrics: Raw = ABSENT
    error: Raw = ABSENT


class _TextChoice(Struct, gc=False):
    index: int = 0
    text: str | None = None
    finish_reason: str | None = None


class _TextChunk(Struct, gc=False):
    choices: list[_TextChoice] | None = None
    usage: Raw = ABSENT
    metrics: Raw = ABSENT
    error: Raw = ABSENT


def tool_bytes(calls: list[ToolCall]) -> int:
    """Return the UTF-8 length of the arguments in ``calls``."""
    return sum(utf8_bytes(call.function.arguments or "") for call in calls if call.function is not None)


_TEXTS = ("content", "reasoning", "reasoning_content")


class ChatReader:
    """Writes what chat events mean into one answer, and teaches a stencil the usual ones."""

    __slots__ = ("_answer", "_decode", "_stencil", "_timeline")

    def __init__(self, answer: Answer, stencil: Stencil) -> None:
        self._answer = answer
        self._stencil = stencil
        self._timeline = answer.timeline
        self._decode = json.Decoder(_ChatChunk).decode

    def read(self, data: bytes, now: float, name: str) -> None:  # noqa: ARG002  (events of this dialect have none)
        """Take in one event that came at ``now``."""
        if data[:6] == b"[DONE]":
            self._answer.done = True
            return
        chunk = self._decode(data)
        if chunk.choices:
            self._read_choices(chunk.choices, now)
        if chunk.usage is not ABSENT or chunk.metrics is not ABSENT or chunk.error is not ABSENT:
            self._answer.take(usage=chunk.usage, metrics=chunk.metrics, error=chunk.error, whole=not chunk.choices)
        elif self._stencil.teachable:
            self._teach(data, chunk)

    def _teach(self, data: bytes, chunk: _ChatChunk) -> None:
        """An event of one choice with text in one channel and nothing else: there will be more of its kind."""
        match chunk.choices:
            case [_ChatChoice(delta=Delta(tool_calls=None) as delta, finish_reason=None) as choice]:
                texts = [name for name in _TEXTS if getattr(delta, name)]
            case _:
                return
        if len(texts) != 1 or choice.index not in self._answer.choices:
            return
        [name] = texts

        def same(other: bytes, text: str) -> bool:
            expected = replace(chunk, choices=[replace(choice, delta=replace(delta, **{name: text}))])
            return self._decode(other) == expected

        self._stencil.learn(data, name.encode(), getattr(delta, name), reasoning=name != "content", same=same)

    def _read_choices(self, choices: list[_ChatChoice], now: float) -> None:
        answer, timeline = self._answer, self._timeline
        reasoning = content = tool = 0
        for choice in choices:
            if choice.index not in answer.choices:
                answer.begin(choice.index)
                timeline.begin(now)
            delta = choice.delta
            if delta is not None:
                text = delta.content
                if text:
                    content += len(text) if text.isascii() else len(text.encode())
                text = delta.reasoning or delta.reasoning_content
                if text:
                    reasoning += len(text) if text.isascii() else len(text.encode())
                if delta.tool_calls:
                    answer.tool_seen = True
                    tool += tool_bytes(delta.tool_calls)
            if choice.finish_reason:
                answer.finish(choice.index, choice.finish_reason)
                timeline.finish = now
        if reasoning or content or tool:
            timeline.chunk(now, reasoning=reasoning, content=content, tool=tool)


class CompletionsReader:
    """Writes what completions events mean into one answer, and teaches a stencil the usual ones."""

    __slots__ = ("_answer", "_decode", "_stencil", "_timeline")

    def __init__(self, answer: Answer, stencil: Stencil) -> None:
        self._answer = answer
        self._stencil = stencil
        self._timeline = answer.timeline
        self._decode = json.Decoder(_TextChunk).decode

    def read(self, data: bytes, now: float, name: str) -> None:  # noqa: ARG002  (events of this dialect have none)
        """Take in one event that came at ``now``."""
        if data[:6] == b"[DONE]":
            self._answer.done = True
            return
        chunk = self._decode(data)
        answer, timeline = self._answer, self._timeline
        content = 0
        for choice in chunk.choices or ():
            if choice.index not in answer.choices:
                answer.begin(choice.index)
                timeline.begin(now)
            if choice.text:
                content += utf8_bytes(choice.text)
            if choice.finish_reason:
                answer.finish(choice.index, choice.finish_reason)
                timeline.finish = now
        if content:
            timeline.chunk(now, content=content)
        if chunk.usage is not ABSENT or chunk.metrics is not ABSENT or chunk.error is not ABSENT:
            answer.take(usage=chunk.usage, metrics=chunk.metrics, error=chunk.error, whole=not chunk.choices)
        elif self._stencil.teachable:
            self._teach(data, chunk)

    def _teach(self, data: bytes, chunk: _TextChunk) -> None:
        match chunk.choices:
            case [_TextChoice(text=str(text), finish_reason=None) as choice] if text:
                pass
            case _:
                return
        if choice.index not in self._answer.choices:
            return

        def same(other: bytes, text: str) -> bool:
            return self._decode(other) == replace(chunk, choices=[replace(choice, text=text)])

        self._stencil.learn(data, b"text", text, reasoning=False, same=same)
