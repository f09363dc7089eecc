"""One answer of the Messages API: named events of content blocks, or one message.

Pure but for its own state.  What vLLM was recorded to do: ``message_start`` comes with the first token, a block opens
with its first text and closes when another kind begins, a thinking block ends with a signature that means nothing;
there is no ``[DONE]``, and a dead engine's ``error`` event tells of the converter's confusion, not of the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

import msgspec

from gateway.simulator.asked import Asked
from gateway.simulator.refusals import Refused
from gateway.simulator.reply import Choice, Manners, Reply, is_json
from gateway.simulator.responses_shapes import Fields, named_event
from gateway.simulator.shapes import TERMINATOR, Identity, quote

_SIGNATURE_DIGITS: Final = 32
# The chat stream's error object is no chat event: the converter fails over it and says so.
_MISSING: Final = (
    "{field}\n  Field required [type=missing, input_value={{'error': {{'message': '{start}...am': None, 'code': 500}}}}, "
    "input_type=dict]\n    For further information visit https://errors.pydantic.dev/2.14/v/missing"
)


class Block(StrEnum):
    """The kinds of content blocks."""

    THINKING = "thinking"
    TEXT = "text"
    TOOL_USE = "tool_use"


_DELTAS: Final = {
    Block.THINKING: ("thinking_delta", "thinking"),
    Block.TEXT: ("text_delta", "text"),
    Block.TOOL_USE: ("input_json_delta", "partial_json"),
}


class MessagesAnswer(Reply):
    """The answer to a request of ``/v1/messages``."""

    __slots__ = ("_arguments", "_held", "_index", "_is_calling", "_open")

    def __init__(self, identity: Identity, asked: Asked, *, manners: Manners, hexes: Callable[[int], str]) -> None:
        super().__init__(identity, asked, manners=manners, hexes=hexes)
        self._open: Block | None = None
        self._index = 0  # of the open block, or of the next one
        self._held = ""  # text that came inside a call: it follows in a block of its own
        self._is_calling = False
        self._arguments = ""

    def flush(self, choice: Choice) -> bytes:
        """Return the events of what came."""
        tokens, choice.pending = choice.pending, []
        if choice.is_finished or not (tokens or choice.finish):
            return b""
        parts = [] if choice.is_started else [self._start()]
        choice.is_started = True
        said = self._heard(choice, tokens)
        if said.reasoning:
            parts += self._say(Block.THINKING, said.reasoning)
        if said.content and self._open is Block.TOOL_USE:
            self._held += said.content
        elif said.content:
            parts += self._say(Block.TEXT, said.content)
        if said.is_named:
            parts += self._call(choice)
        if said.arguments:
            self._arguments += said.arguments
            parts += self._say(Block.TOOL_USE, said.arguments)
        if choice.finish:
            choice.is_finished = True
            parts += [*self._close(), *self._ending(choice), TERMINATOR]
        return b"".join(parts)

    def broken(self, message: str) -> bytes:
        """Return the error event of a dead engine."""
        for choice in self.choices:
            choice.is_finished = True
        missing = "\n".join(_MISSING.format(field=field, start=message[:2]) for field in ("model", "choices"))
        words = f"2 validation errors for ChatCompletionStreamResponse\n{missing}"
        error = {"type": "internal_error", "message": words}
        return _event("error", {"error": error}) + TERMINATOR

    def whole(self) -> bytes:
        """Return the message; what has no value is left out of it."""
        choice = self.choices[0]
        whole = self._whole(choice)
        content: list[Fields] = []
        if whole.reasoning:
            signature = self._hexes(_SIGNATURE_DIGITS)
            content.append({"type": "thinking", "thinking": whole.reasoning, "signature": signature})
        if whole.content:
            content.append({"type": "text", "text": whole.content})
        if whole.call is not None:
            call_id, name, arguments = whole.call
            given = msgspec.json.decode(arguments)
            content.append({"type": "tool_use", "id": call_id, "name": name, "input": given})
        has_call = whole.call is not None
        reason, sequence = stop_reason(whole.finish, whole.stop_reason, used_tool=has_call, is_complete=has_call)
        told = {"stop_reason": reason, "stop_sequence": sequence}
        return quote(
            {
                "id": self.identity.full_id,
                "type": "message",
                "role": "assistant",
                "content": content or [{"type": "text", "text": ""}],
                "model": self.identity.model,
                **{key: value for key, value in told.items() if value is not None},
                "usage": self._usage(choice.generated),
            }
        )

    def refusal(self, refused: Refused) -> Refused:
        """Return an error in the form of the Messages API."""
        return refused.as_message()

    def _start(self) -> bytes:
        message: Fields = {
            "id": self.identity.full_id,
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": self.identity.model,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": self._usage(0),
        }
        return _event("message_start", {"message": message})

    def _say(self, block: Block, text: str) -> list[bytes]:
        parts = []
        if self._open is not block:
            parts = [*self._close(), self._begin(block, {_DELTAS[block][1]: ""})]
        kind, key = _DELTAS[block]
        return [*parts, self._delta({"type": kind, key: text})]

    def _call(self, choice: Choice) -> list[bytes]:
        parts = self._close()
        self._is_calling, self._arguments = True, ""
        given: dict[str, Any] = {"id": choice.tool.call_id, "name": choice.tool.name, "input": {}}
        return [*parts, self._begin(Block.TOOL_USE, given)]

    def _begin(self, block: Block, fields: Fields) -> bytes:
        self._open = block
        return _event("content_block_start", {"content_block": {"type": block, **fields}, "index": self._index})

    def _delta(self, delta: Fields) -> bytes:
        return _event("content_block_delta", {"delta": delta, "index": self._index})

    def _close(self) -> list[bytes]:
        if self._open is None:
            return []
        parts = []
        if self._open is Block.THINKING:
            parts.append(self._delta({"type": "signature_delta", "signature": self._hexes(_SIGNATURE_DIGITS)}))
        parts.append(_event("content_block_stop", {"index": self._index}))
        self._open = None
        self._index += 1
        held, self._held = self._held, ""
        if held:
            parts += [*self._say(Block.TEXT, held), *self._close()]
        return parts

    def _ending(self, choice: Choice) -> list[bytes]:
        reason, sequence = stop_reason(
            choice.finish,
            choice.stop_reason,
            used_tool=self._is_calling,
            is_complete=self._is_calling and is_json(self._arguments),
        )
        delta = {"stop_reason": reason, "stop_sequence": sequence}
        usage = self._usage(choice.generated)
        return [_event("message_delta", {"delta": delta, "usage": usage}), _event("message_stop", {})]

    def _usage(self, output_tokens: int) -> Fields:
        return {"input_tokens": self.asked.prompt_tokens, "output_tokens": output_tokens}


def stop_reason(finish: str, stop: str | None, *, used_tool: bool, is_complete: bool) -> tuple[str | None, str | None]:
    """Return the (stop_reason, stop_sequence) of a finish reason; both are None for an abort.

    A stop string wins over a call that it cut short, not over one that ``is_complete``.
    """
    if finish == "length":
        return "max_tokens", None
    if finish not in {"stop", "tool_calls"}:
        return None, None
    if is_complete:
        return "tool_use", None
    if stop is not None:
        return "stop_sequence", stop
    return ("tool_use" if used_tool or finish == "tool_calls" else "end_turn"), None


def _event(kind: str, fields: Fields) -> bytes:
    return named_event(kind, {"type": kind, **fields})
