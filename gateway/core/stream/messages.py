"""Reads events of `/v1/messages`: blocks that start, grow and stop between `message_start` and `message_stop`.

Inside the tap.  `message_start` comes with the first token and `message_delta` with the reason to stop, so they
bound the decode window.  A message that was aborted stops without a reason.  Raises what msgspec raises for
unreadable data; the tap counts it.
"""

from __future__ import annotations

from msgspec import Raw, Struct, json

from gateway.core.stream.answer import Answer
from gateway.core.stream.chunk import ABSENT, is_given, utf8_bytes


class _Delta(Struct, gc=False):
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Message(Struct, gc=False):
    usage: Raw = ABSENT


class _Event(Struct, gc=False):
    type: str = ""
    message: _Message | None = None
    delta: _Delta | None = None
    usage: Raw = ABSENT
    error: Raw = ABSENT


class MessagesReader:
    """Writes what the events of a message mean into one answer, as its only choice."""

    __slots__ = ("_answer", "_decode", "_timeline")

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._timeline = answer.timeline
        self._decode = json.Decoder(_Event).decode

    def read(self, data: bytes, now: float, name: str) -> None:
        """Take in one event that came at ``now``; the type inside the data goes before the event's ``name``."""
        event = self._decode(data)
        answer = self._answer
        match event.type or name:
            case "content_block_delta":
                self._read_delta(event.delta, now)
            case "message_start":
                answer.begin(0)
                self._timeline.begin(now)
                if event.message is not None and is_given(event.message.usage):
                    answer.first_usage = event.message.usage.copy()
            case "message_delta":
                if event.delta is not None and event.delta.stop_reason:
                    answer.finish(0, event.delta.stop_reason)
                    self._timeline.finish = now
                answer.take(usage=event.usage, metrics=ABSENT, error=ABSENT, whole=True)
            case "message_stop":
                answer.done = True
            case "error":
                answer.fail(event.error if is_given(event.error) else data)
            case _:
                pass

    def _read_delta(self, delta: _Delta | None, now: float) -> None:
        if delta is None:
            return
        if delta.text:
            self._timeline.chunk(now, content=utf8_bytes(delta.text))
        elif delta.thinking:
            self._timeline.chunk(now, reasoning=utf8_bytes(delta.thinking))
        elif delta.partial_json:
            self._answer.tool_seen = True
            self._timeline.chunk(now, tool=utf8_bytes(delta.partial_json))
