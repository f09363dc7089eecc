"""One answer in progress: which events leave when, and the whole body of an answer that is not streamed.

Pure but for its own state: emissions go in, bytes come out.  What vLLM was recorded to do: the role event with the
first token, no event for tokens without text unless ids or logprobs are asked for, the finish, the usage, ``[DONE]``
and the terminator in one write.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.simulator import extras
from gateway.simulator.asked import Asked
from gateway.simulator.request import Emission, Timing, Token
from gateway.simulator.shapes import (
    DONE,
    NULL,
    TERMINATOR,
    EventShapes,
    Form,
    Identity,
    Piece,
    Usage,
    WholeChoice,
    delta_json,
    error_event,
    quote,
    tool_arguments_json,
    tool_name_json,
    usage_json,
    whole_body,
)
from gateway.simulator.texts import StopWatch, ToolText, split, spoken

_SINGLE: Final = 1


@dataclass(frozen=True, slots=True)
class Manners:
    """What the server's arguments decide about every answer."""

    stream_interval: int = 1
    parses_reasoning: bool = True
    parses_tools: bool = True
    request_metrics: bool = False
    prompt_details: bool = False


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


class Answer:
    """The state of one request's answer; owner: the face, which feeds it and sends what it gives."""

    __slots__ = ("_manners", "_prompt_ids", "_shapes", "asked", "choices", "identity", "request_id", "stopped")

    def __init__(self, identity: Identity, asked: Asked, *, manners: Manners, tool_ids: list[str]) -> None:
        self.identity = identity
        self.asked = asked
        self.request_id = -1
        self.stopped = False  # a stop string ended a choice before the engine did
        self._manners = manners
        self._shapes = EventShapes(identity, n=asked.n)
        self.choices = [
            Choice(index, asked, tool=ToolText(tool_id, asked.tool)) for index, tool_id in enumerate(tool_ids)
        ]
        self._prompt_ids = NULL
        if asked.token_ids:
            self._prompt_ids = extras.ids_json(extras.token_id(f"{at}") for at in range(asked.prompt_tokens))

    @property
    def is_finished(self) -> bool:
        """Whether every choice has ended."""
        return all(choice.is_finished for choice in self.choices)

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

    def flush(self, choice: Choice) -> bytes:
        """Return what is due to be sent of ``choice``; with the end of the last one also the end of the stream."""
        tokens, choice.pending = choice.pending, []
        if choice.is_finished or not (tokens or choice.finish):
            return b""
        parts = [] if self.identity.form is Form.COMPLETIONS else self._role(choice)
        is_first, choice.is_started = not choice.is_started, True
        piece = self._piece(choice, tokens)
        if piece is not None:
            ids = self._prompt_ids if is_first else NULL
            parts.append(self._shapes.event(choice.index, piece, prompt_token_ids=ids))
        if self.is_finished:
            parts.append(self._ending())
        return b"".join(parts)

    def abort(self) -> bytes:
        """Return the end of the answer as an engine that is shut down gives it: finish reason ``abort``."""
        parts = []
        for choice in self.choices:
            if not choice.is_finished:
                choice.finish = "abort"
                if self.asked.stream:
                    parts.append(self.flush(choice))
                else:
                    choice.is_finished = True
        return b"".join(parts)

    def broken(self, message: str) -> bytes:
        """Return the end of a stream whose engine died."""
        for choice in self.choices:
            choice.is_finished = True
        return error_event(message) + DONE + TERMINATOR

    def whole(self) -> bytes:
        """Return the body of an answer that is not streamed."""
        choices = [self._whole_choice(choice) for choice in self.choices]
        usage = usage_json(self._total(), whole=True)
        return whole_body(
            self.identity, choices, usage=usage, prompt_token_ids=self._prompt_ids, metrics=self._metrics(whole=True)
        )

    def _role(self, choice: Choice) -> list[bytes]:
        if choice.is_started:
            return []
        usage = b""
        if self.asked.continuous_usage:
            usage = usage_json(Usage(self.asked.prompt_tokens, 0, 0 if self._counts_reasoning else None), whole=False)
        return [self._shapes.role(choice.index, prompt_token_ids=self._prompt_ids, usage=usage)]

    @property
    def _counts_reasoning(self) -> bool:
        return self._manners.parses_reasoning and self.identity.form is Form.CHAT

    def _piece(self, choice: Choice, tokens: list[Token]) -> Piece | None:
        """Return the event of these tokens, None when they give none; marks the choice finished."""
        asked = self.asked
        reasoning, content, tool = split(tokens, parses_reasoning=self._counts_reasoning)
        if choice.stops is not None:
            content, hit = choice.stops.feed(content, is_last=bool(choice.finish))
            if hit is not None:
                choice.finish, choice.stop_reason, self.stopped = "stop", hit, True
        if not asked.include_reasoning:
            reasoning = ""
        body = self._body(choice, reasoning, content=content, tool=tool)
        choice.is_finished = bool(choice.finish)
        is_silent = body == b"{}" and self.identity.form is Form.CHAT
        is_forced = (asked.token_ids or asked.logprobs is not None) and asked.include_reasoning
        if is_silent and not choice.finish and not is_forced:
            return None
        shown = tokens if asked.include_reasoning or not is_silent else []
        return Piece(
            body=body,
            finish=choice.finish,
            stop_reason=choice.stop_reason,
            logprobs=self._logprobs(choice, shown),
            token_ids=extras.ids_json(token.number for token in shown) if asked.token_ids else NULL,
            usage=self._usage_now(choice),
            is_last=choice.is_finished and not asked.include_usage and self.is_finished,
        )

    def _body(self, choice: Choice, reasoning: str, *, content: str, tool: str) -> bytes:
        if self.identity.form is Form.COMPLETIONS:
            return quote(content)
        if tool and not self._manners.parses_tools:
            content, tool = content + tool, ""
        call = self._call(choice.tool, tool) if tool or choice.tool.held else b""
        if not self._manners.parses_reasoning and not call:
            return b'{"content":%b}' % quote(content)
        return delta_json(
            reasoning=reasoning, content=content, tool=call, null_reasoning=not self.asked.include_reasoning
        )

    @staticmethod
    def _call(tool: ToolText, text: str) -> bytes:
        is_named, arguments = tool.feed(text)
        if is_named:
            return tool_name_json(tool.call_id, tool.name)
        return tool_arguments_json(arguments) if arguments else b""

    def _logprobs(self, choice: Choice, tokens: list[Token]) -> bytes:
        if self.asked.logprobs is None or not tokens:
            return NULL
        names = [spoken(token) for token in tokens]
        if self.identity.form is Form.CHAT:
            return extras.chat_logprobs(names, top=self.asked.logprobs)
        rendered = extras.completions_logprobs(names, offset=choice.offset, top=self.asked.logprobs)
        choice.offset += sum(map(len, names))
        return rendered

    def _usage_now(self, choice: Choice) -> bytes:
        if not self.asked.continuous_usage:
            return b""
        reasoning = choice.reasoning if self._counts_reasoning else None
        return usage_json(Usage(self.asked.prompt_tokens, choice.generated, reasoning), whole=False)

    def _total(self) -> Usage:
        generated = sum(choice.generated for choice in self.choices)
        reasoning = sum(choice.reasoning for choice in self.choices) if self._counts_reasoning else None
        timing = self.choices[0].timing
        if timing is None:
            return Usage(self.asked.prompt_tokens, generated, reasoning)
        # Nothing found in the cache is left out, not 0.
        cached = timing.cached_tokens if self._manners.prompt_details else 0
        return Usage(self.asked.prompt_tokens + timing.extra_prompt_tokens, generated, reasoning, cached)

    def _ending(self) -> bytes:
        usage = b""
        if self.asked.include_usage:
            usage = self._shapes.usage_event(usage_json(self._total(), whole=False), metrics=self._metrics(whole=False))
        return usage + DONE + TERMINATOR

    def _metrics(self, *, whole: bool) -> bytes:
        timing = self.choices[0].timing
        if not self._manners.request_metrics or self.asked.n != _SINGLE or timing is None:
            return b""
        if timing.scheduled_at is None or timing.first_token_at is None or timing.last_token_at is None:
            return b""
        return extras.metrics_json(
            first_token_s=timing.first_token_at - timing.scheduled_at,
            generation_s=timing.last_token_at - timing.first_token_at,
            queue_s=timing.scheduled_at - timing.queued_at,
            tokens=self.choices[0].generated,
            whole=whole,
        )

    def _whole_choice(self, choice: Choice) -> WholeChoice:
        reasoning, content, tool = split(choice.said, parses_reasoning=self._counts_reasoning)
        finish, call = choice.finish, None
        if tool and self._manners.parses_tools:
            choice.tool.feed(tool)
            call = (choice.tool.call_id, choice.tool.name, choice.tool.arguments or "")
            content = content.strip()
        if choice.stops is not None:
            content, choice.stop_reason = choice.stops.feed(content, is_last=True)
            finish = "stop" if choice.stop_reason else finish
        is_chat = self.identity.form is Form.CHAT
        return WholeChoice(
            finish=finish,
            stop_reason=choice.stop_reason,
            content=content or (None if is_chat else ""),
            reasoning=(reasoning or None) if self.asked.include_reasoning else None,
            tool_call=call,
            logprobs=self._logprobs(choice, choice.said),
            token_ids=extras.ids_json(token.number for token in choice.said) if self.asked.token_ids else NULL,
        )
