"""Reads events of `/v1/responses`: each has a type, the last one tells how the response ended.

Inside the tap.  There is no `[DONE]` and no event that comes with the first token, so the decode window is first to
last token.  The end event carries the whole answer again: only its status, usage and metrics are looked at.  Raises
what msgspec raises for unreadable data; the tap counts it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Raw, Struct, json

from gateway.core.stream.answer import Answer
from gateway.core.stream.chunk import ABSENT, is_given, utf8_bytes

_CONTENT: Final = frozenset({"response.output_text.delta", "response.refusal.delta"})
_REASONING: Final = frozenset({"response.reasoning_text.delta", "response.reasoning_summary_text.delta"})
_TOOL: Final = frozenset(
    {
        "response.code_interpreter_call_code.delta",
        "response.custom_tool_call_input.delta",
        "response.function_call_arguments.delta",
        "response.mcp_call_arguments.delta",
    }
)
_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})


class _Response(Struct, gc=False):
    id: str = ""
    status: str | None = None
    usage: Raw = ABSENT
    metrics: Raw = ABSENT
    error: Raw = ABSENT


class _Event(Struct, gc=False):
    type: str = ""
    delta: str | None = None
    response: _Response | None = None
    error: Raw = ABSENT


class ResponsesReader:
    """Writes what the events of a response mean into one answer, as its only choice.

    ``on_id`` is told the response's id once, as soon as it is known.
    """

    __slots__ = ("_answer", "_decode", "_on_id", "_timeline")

    def __init__(self, answer: Answer, on_id: Callable[[str], None] | None = None) -> None:
        self._answer = answer
        self._on_id = on_id
        self._timeline = answer.timeline
        self._decode = json.Decoder(_Event).decode

    def read(self, data: bytes, now: float, name: str) -> None:
        """Take in one event that came at ``now``; the type inside the data goes before the event's ``name``."""
        event = self._decode(data)
        if not self._answer.choices:
            self._answer.begin(0)
        if event.response is not None and self._on_id is not None and event.response.id:
            self._on_id(event.response.id)
            self._on_id = None
        kind = event.type or name
        if event.delta:
            self._read_delta(kind, event.delta, now)
        elif kind in _ENDS:
            self._end(event.response)
        elif kind == "error" and not is_given(event.error):
            self._answer.fail(data)
        elif is_given(event.error):
            # vLLM sends the error envelope of chat when a generation fails.
            self._answer.fail(event.error)

    def _read_delta(self, kind: str, text: str, now: float) -> None:
        size = utf8_bytes(text)
        if kind in _CONTENT:
            self._timeline.chunk(now, content=size)
        elif kind in _REASONING:
            self._timeline.chunk(now, reasoning=size)
        elif kind in _TOOL:
            self._answer.tool_seen = True
            self._timeline.chunk(now, tool=size)

    def _end(self, response: _Response | None) -> None:
        answer = self._answer
        answer.done = True
        if response is None:
            return
        answer.take(usage=response.usage, metrics=response.metrics, error=response.error, whole=True)
        if response.status:
            answer.finish(0, response.status)
