"""What every answer in progress has, whatever its API: its choices, what they have said, and when something is due.

Pure but for its own state: emissions of the engine go in, bytes come out.  A kind of answer says how its bytes look
and what comes in which event; who is sent what, and when an answer is over, is the desk's business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from gateway.simulator import extras
from gateway.simulator.asked import Asked
from gateway.simulator.refusals import Refused
from gateway.simulator.request import Emission, Timing, Token
from gateway.simulator.shapes import Form, Identity
from gateway.simulator.texts import StopWatch, ToolText, split
from gateway.simulator.words import TOOL_OPEN

_SINGLE: Final = 1


@dataclass(frozen=True, slots=True)
class Manners:
    """What the server's arguments decide about every answer; ``spec_metrics``: none, summary or detailed."""

    stream_interval: int = 1
    parses_reasoning: bool = True
    parses_tools: bool = True
    request_metrics: bool = False
    prompt_details: bool = False
    draft_tokens: int = 0
    spec_metrics: str = "none"


class Said(msgspec.Struct, frozen=True, gc=False):
    """What some tokens say to a client; ``is_named`` when they complete the name of a tool call."""

    reasoning: str
    content: str
    is_named: bool = False
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Whole:
    """What a choice has said in all; ``call`` is (id, name, arguments) of its tool call."""

    reasoning: str
    content: str
    call: tuple[str, str, str] | None
    finish: str
    stop_reason: str | None


class Choice:
    """One choice: what it has said and what still waits to be said; owner: its answer."""

    __slots__ = (
        "finish", "generated", "index", "is_finished", "is_started", "offset", "pending", "reasoning", "said",
        "stop_reason", "stops", "timing", "tool",
    )  # fmt: skip

    def __init__(self, index: int, asked: Asked, *, tool: ToolText) -> None:
        self.index = index
        self.pending: list[Token] = []
        self.said: list[Token] = []
        self.is_started = False
        self.is_finished = False
        self.finish = ""
        self.stop_reason: str | None = None
        self.generated = 0
        self.reasoning = 0
        self.offset = 0
        self.timing: Timing | None = None
        self.tool = tool
        self.stops = StopWatch(asked.stop) if asked.stop else None


class Reply(ABC):
    """The state of one request's answer; owner: the desk, which feeds it and sends what it gives.

    ``hexes(n)`` gives n random-looking hexadecimal digits, for the ids that the answer makes.
    """

    __slots__ = ("_hexes", "_manners", "asked", "choices", "identity", "request_id", "stopped")

    def __init__(self, identity: Identity, asked: Asked, *, manners: Manners, hexes: Callable[[int], str]) -> None:
        self.identity = identity
        self.asked = asked
        self.request_id = -1
        self.stopped = False  # a stop string ended a choice before the engine did
        self._manners = manners
        self._hexes = hexes
        self.choices = [Choice(index, asked, tool=self._call_text()) for index in range(asked.n)]

    def _call_text(self) -> ToolText:
        name = self.asked.tool
        return ToolText(f"chatcmpl-tool-{self._hexes(16)}" if name else "", name)

    @property
    def is_finished(self) -> bool:
        """Whether every choice has ended."""
        return all(choice.is_finished for choice in self.choices)

    @property
    def is_prefilling(self) -> bool:
        """Whether not one token has come."""
        return not any(choice.generated for choice in self.choices)

    @property
    def _parses_reasoning(self) -> bool:
        return self._manners.parses_reasoning and self.identity.form is not Form.COMPLETIONS

    def take(self, emission: Emission) -> Choice | None:
        """Add an emission; return its choice when something is due to be sent (or, without a stream, at its end)."""
        choice = self.choices[emission.choice]
        if choice.is_finished:
            return None
        choice.pending.extend(emission.tokens)
        choice.generated = emission.generated_tokens
        choice.reasoning = emission.reasoning_tokens
        if emission.finish is not None:
            choice.finish = emission.finish
            choice.timing = emission.timing
        if not self.asked.stream:
            return self._collect(choice)
        is_due = not choice.is_started or choice.finish or len(choice.pending) >= self._manners.stream_interval
        return choice if is_due else None

    def _collect(self, choice: Choice) -> Choice | None:
        choice.said += choice.pending
        choice.pending = []
        if choice.finish:
            choice.is_finished = True
            return choice
        return None

    def abort(self) -> bytes:
        """Return the end of the answer as an engine that is shut down gives it: finish reason ``abort``."""
        parts = []
        for choice in self.choices:
            if not choice.is_finished:
                choice.finish = "abort"
                if self.asked.stream:
                    parts.append(self.flush(choice))
                else:
                    self._collect(choice)
        return b"".join(parts)

    def opening(self) -> bytes:
        """Return what a stream begins with right after its head, before the engine has a token."""
        return b""

    @abstractmethod
    def flush(self, choice: Choice) -> bytes:
        """Return what is due to be sent of ``choice``; with the end of the last one also the end of the stream."""

    @abstractmethod
    def whole(self) -> bytes:
        """Return the body of an answer that is not streamed."""

    @abstractmethod
    def broken(self, message: str) -> bytes:
        """Return the end of a stream whose engine died; empty where vLLM cuts the connection instead."""

    def refusal(self, refused: Refused) -> Refused:
        """Return an error in the form of the answer's API."""
        return refused

    def _heard(self, choice: Choice, tokens: list[Token]) -> Said:
        """Return what a stream's next tokens say; a stop string in them ends the choice."""
        reasoning, content, tool = split(tokens, parses_reasoning=self._parses_reasoning)
        if choice.stops is not None:
            content, hit = choice.stops.feed(content, is_last=bool(choice.finish))
            if hit is not None:
                choice.finish, choice.stop_reason, self.stopped = "stop", hit, True
        if not self.asked.include_reasoning:
            reasoning = ""
        if tool and not self._manners.parses_tools:
            return Said(reasoning, content + tool)
        is_named, arguments = choice.tool.feed(tool) if tool or choice.tool.held else (False, "")
        if choice.finish and choice.tool.held:
            arguments += choice.tool.feed("")[1]
        return Said(reasoning, content, is_named, arguments)

    def _whole(self, choice: Choice) -> Whole:
        """Return what a choice without a stream has said; content that only led to a call is not kept."""
        reasoning, content, tool = split(choice.said, parses_reasoning=self._parses_reasoning)
        call = None
        if tool:
            content, call = self._called(choice.tool, tool, content=content)
        finish = choice.finish
        if choice.stops is not None:
            content, choice.stop_reason = choice.stops.feed(content, is_last=True)
            finish = "stop" if choice.stop_reason else finish
        if not self.asked.include_reasoning:
            reasoning = ""
        return Whole(reasoning, content, call, finish, choice.stop_reason)

    def _called(self, tool: ToolText, text: str, *, content: str) -> tuple[str, tuple[str, str, str] | None]:
        """Return (the content beside the call, the call); a call that was cut short stays text."""
        if self._manners.parses_tools:
            tool.feed(text)
            if is_json(text):
                return content.strip(), (tool.call_id, tool.name, tool.arguments or "")
        return f"{content}{TOOL_OPEN.text}{text}", None

    def _metrics(self, *, whole: bool) -> bytes:
        timing = self.choices[0].timing
        if self.asked.n != _SINGLE or timing is None:
            return b""
        drafting = self._drafting(timing)
        if not self._manners.request_metrics:
            return extras.metrics_json(None, drafting=drafting, whole=whole) if drafting else b""
        if timing.scheduled_at is None or timing.first_token_at is None or timing.last_token_at is None:
            return b""
        times = extras.Times(
            first_token_s=timing.first_token_at - timing.scheduled_at,
            generation_s=timing.last_token_at - timing.first_token_at,
            queue_s=timing.scheduled_at - timing.queued_at,
            tokens=self.choices[0].generated,
        )
        return extras.metrics_json(times, drafting=drafting, whole=whole)

    def _drafting(self, timing: Timing) -> dict[str, object] | None:
        """What is told of speculation; the Responses API never tells it."""
        level = self._manners.spec_metrics
        if level == "none" or not self._manners.draft_tokens or self.identity.form is Form.RESPONSES:
            return None
        return extras.drafting(timing.accepted, draft_tokens=self._manners.draft_tokens, detailed=level == "detailed")


def is_json(text: str) -> bool:
    """Whether ``text`` is a JSON value, as a call that was not cut short is."""
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True
