"""One answer of the Responses API: named events with a running number, or one response object.

Pure but for its own state.  What vLLM was recorded to do: ``created`` and ``in_progress`` leave at once, even while the
request waits in the queue; an item opens with its first text and closes when another kind begins; a response that was
cut or aborted still ends with ``response.completed``; there is no ``[DONE]``.  A dead engine cuts the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import assert_never

from gateway.simulator import extras
from gateway.simulator import responses_shapes as shapes
from gateway.simulator.asked import Asked
from gateway.simulator.reply import Choice, Manners, Reply
from gateway.simulator.request import Token
from gateway.simulator.responses_shapes import Echo, Fields, Standing
from gateway.simulator.shapes import TERMINATOR, Identity, Usage, quote
from gateway.simulator.texts import spoken


class Kind(StrEnum):
    """The kinds of items, with the prefix of their ids."""

    REASONING = "rs_"
    MESSAGE = "msg_"
    CALL = "fc_"


class Item:
    """The item that is being written; owner: its answer."""

    __slots__ = ("call", "item_id", "kind", "logprobs", "place", "said")

    def __init__(self, kind: Kind, item_id: str, *, place: int, call: tuple[str, str]) -> None:
        self.kind = kind
        self.item_id = item_id
        self.place = place  # its index in the output
        self.call = call  # (id, name) of a function call
        self.said: list[str] = []
        self.logprobs: list[Fields] = []

    def opening(self) -> list[tuple[str, Fields]]:
        """Return the events that begin it."""
        match self.kind:
            case Kind.REASONING:
                item = shapes.reasoning_item(self.item_id, None, status="in_progress")
                return [self._item("added", item), self._part("added", {"text": "", "type": "reasoning_text"})]
            case Kind.MESSAGE:
                item = shapes.message_item(self.item_id, (), status="in_progress")
                return [self._item("added", item), self._part("added", shapes.text_part("", logprobs=[]))]
            case Kind.CALL:
                item = shapes.call_item(self.item_id, (*self.call, ""), status="in_progress")
                return [self._item("added", item)]
            case _:
                assert_never(self.kind)

    def delta(self, text: str, logprobs: list[Fields]) -> tuple[str, Fields]:
        """Return the event of more text."""
        self.said.append(text)
        self.logprobs += logprobs
        match self.kind:
            case Kind.REASONING:
                fields = {"content_index": 0, "delta": text, "item_id": self.item_id, "output_index": self.place}
                return "response.reasoning_text.delta", fields
            case Kind.MESSAGE:
                brief = [extras.brief_logprob(entry) for entry in logprobs]
                fields = {"content_index": 0, "delta": text, "item_id": self.item_id, "logprobs": brief}
                return "response.output_text.delta", fields | {"output_index": self.place}
            case Kind.CALL:
                fields = {"delta": text, "item_id": self.item_id, "output_index": self.place}
                return "response.function_call_arguments.delta", fields
            case _:
                assert_never(self.kind)

    @property
    def text(self) -> str:
        """All that it says."""
        return "".join(self.said)

    def closing(self) -> list[tuple[str, Fields]]:
        """Return the events that end it."""
        where = {"item_id": self.item_id, "output_index": self.place}
        item = self.done()
        match self.kind:
            case Kind.REASONING:
                done = {"content_index": 0, **where, shapes.NUMBER: 0, "text": self.text}
                part = {"text": self.text, "type": "reasoning_text"}
                events = [("response.reasoning_text.done", done), self._part("done", part)]
            case Kind.MESSAGE:
                done = {"content_index": 0, "item_id": self.item_id, "logprobs": [], "output_index": self.place}
                done |= {shapes.NUMBER: 0, "text": self.text}
                events = [("response.output_text.done", done), self._part("done", item["content"][0])]
            case Kind.CALL:
                done = {"arguments": self.text, **where, shapes.NUMBER: 0, "type": "", "name": self.call[1]}
                events = [("response.function_call_arguments.done", done)]
            case _:
                assert_never(self.kind)
        return [*events, self._item("done", item)]

    def done(self, *, is_streamed: bool = True) -> Fields:
        """Return the finished item; a reasoning item has a status in a stream only."""
        match self.kind:
            case Kind.REASONING:
                return shapes.reasoning_item(self.item_id, self.text, status="completed" if is_streamed else None)
            case Kind.MESSAGE:
                part = shapes.text_part(self.text, logprobs=self.logprobs or None)
                return shapes.message_item(self.item_id, [part], status="completed")
            case Kind.CALL:
                return shapes.call_item(self.item_id, (*self.call, self.text), status="completed")
            case _:
                assert_never(self.kind)

    def _item(self, verb: str, item: Fields) -> tuple[str, Fields]:
        return f"response.output_item.{verb}", {"item": item, "output_index": self.place}

    def _part(self, verb: str, part: Fields) -> tuple[str, Fields]:
        fields = {"content_index": 0, "item_id": self.item_id, "output_index": self.place, "part": part}
        return f"response.content_part.{verb}", fields


class ResponsesAnswer(Reply):
    """The answer to a request of ``/v1/responses``."""

    __slots__ = ("_echo", "_number", "_open", "_output")

    def __init__(self, identity: Identity, asked: Asked, *, manners: Manners, hexes: Callable[[int], str]) -> None:
        super().__init__(identity, asked, manners=manners, hexes=hexes)
        self._echo = asked.echo or Echo()
        self._number = 0  # of the next event
        self._open: Item | None = None
        self._output: list[Fields] = []

    def opening(self) -> bytes:
        """Return the two events that tell of a request that was taken."""
        fields = {"response": self._response(Standing("in_progress"))}
        return b"".join(self._events([("response.created", fields), ("response.in_progress", fields)]))

    def flush(self, choice: Choice) -> bytes:
        """Return the events of what came."""
        tokens, choice.pending = choice.pending, []
        if choice.is_finished or not (tokens or choice.finish):
            return b""
        choice.is_started = True
        said = self._heard(choice, tokens)
        parts = []
        if said.reasoning:
            parts += self._say(Kind.REASONING, said.reasoning)
        if said.content:
            parts += self._say(Kind.MESSAGE, said.content, logprobs=self._logprobs(tokens))
        if said.is_named:
            parts += self._turn(Kind.CALL, call=(choice.tool.call_id, choice.tool.name))[1]
        if said.arguments:
            parts += self._say(Kind.CALL, said.arguments)
        if choice.finish:
            choice.is_finished = True
            parts += self._close()
            standing = self._standing(choice, choice.finish)
            parts += self._events([("response.completed", {"response": self._response(standing)})])
            parts.append(TERMINATOR)
        return b"".join(parts)

    def broken(self, message: str) -> bytes:
        """Return nothing: the connection is cut."""
        del message
        for choice in self.choices:
            choice.is_finished = True
        return b""

    def whole(self) -> bytes:
        """Return the response object."""
        choice = self.choices[0]
        whole = self._whole(choice)
        if whole.reasoning:
            self._write(Kind.REASONING, whole.reasoning)
        if whole.content:
            self._write(Kind.MESSAGE, whole.content, logprobs=self._logprobs(choice.said))
        if whole.call is not None:
            self._write(Kind.CALL, whole.call[2], call=whole.call[:2])
        return quote(self._response(self._standing(choice, whole.finish)))

    def _item(self, kind: Kind, call: tuple[str, str]) -> Item:
        return Item(kind, kind + self._hexes(16), place=len(self._output), call=call)

    def _write(
        self, kind: Kind, text: str, *, logprobs: list[Fields] | None = None, call: tuple[str, str] = ("", "")
    ) -> None:
        item = self._item(kind, call)
        item.delta(text, logprobs or [])
        self._output.append(item.done(is_streamed=False))

    def _say(self, kind: Kind, text: str, *, logprobs: list[Fields] | None = None) -> list[bytes]:
        item, opening = self._open, list[bytes]()
        if item is None or item.kind is not kind:
            item, opening = self._turn(kind)
        return opening + self._events([item.delta(text, logprobs or [])])

    def _turn(self, kind: Kind, *, call: tuple[str, str] = ("", "")) -> tuple[Item, list[bytes]]:
        closing = self._close()
        self._open = item = self._item(kind, call)
        return item, closing + self._events(item.opening())

    def _close(self) -> list[bytes]:
        item, self._open = self._open, None
        if item is None:
            return []
        self._output.append(item.done())
        return self._events(item.closing())

    def _events(self, events: list[tuple[str, Fields]]) -> list[bytes]:
        rendered = []
        for kind, fields in events:
            # Both stand last, unless the event has a place for them: a union keeps the places of the left side.
            rendered.append(shapes.named_event(kind, fields | {shapes.NUMBER: self._number, "type": kind}))
            self._number += 1
        return rendered

    def _standing(self, choice: Choice, finish: str) -> Standing:
        reasoning = choice.reasoning if self._parses_reasoning else 0
        usage = Usage(self.asked.prompt_tokens, choice.generated, reasoning)
        status = "incomplete" if finish == "length" else "completed"
        return Standing(status, self._output, usage, self._metrics(whole=True))

    def _response(self, standing: Standing) -> Fields:
        return shapes.response_object(
            self._echo,
            standing,
            full_id=self.identity.full_id,
            created=self.identity.created,
            model=self.identity.model,
            max_tokens=self.asked.max_tokens,
            top_logprobs=self.asked.logprobs,
        )

    def _logprobs(self, tokens: list[Token]) -> list[Fields]:
        if self.asked.logprobs is None or not self.asked.include_reasoning:
            return []
        return extras.response_logprobs([spoken(token) for token in tokens], top=self.asked.logprobs)
