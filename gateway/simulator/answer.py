"""One answer of chat or completions: which events leave when, and the whole body of an answer that is not streamed.

Pure but for its own state: emissions go in, bytes come out.  What vLLM was recorded to do: the role event with the
first token, no event for tokens without text unless ids or logprobs are asked for, the finish, the usage, ``[DONE]``
and the terminator in one write.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.simulator import extras
from gateway.simulator.asked import Asked
from gateway.simulator.reply import Choice, Manners, Reply, Said
from gateway.simulator.request import Token
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
from gateway.simulator.texts import ToolText, spoken


class Answer(Reply):
    """The answer to a request of chat or completions."""

    __slots__ = ("_prompt_ids", "_shapes")

    def __init__(self, identity: Identity, asked: Asked, *, manners: Manners, hexes: Callable[[int], str]) -> None:
        super().__init__(identity, asked, manners=manners, hexes=hexes)
        self._shapes = EventShapes(identity, n=asked.n)
        self._prompt_ids = NULL
        if asked.token_ids:
            self._prompt_ids = extras.ids_json(extras.token_id(f"{at}") for at in range(asked.prompt_tokens))

    def flush(self, choice: Choice) -> bytes:
        """Return what is due: the role before the first event, the usage and ``[DONE]`` after the last."""
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
            usage = usage_json(Usage(self.asked.prompt_tokens, 0, 0 if self._parses_reasoning else None), whole=False)
        return [self._shapes.role(choice.index, prompt_token_ids=self._prompt_ids, usage=usage)]

    def _piece(self, choice: Choice, tokens: list[Token]) -> Piece | None:
        """Return the event of these tokens, None when they give none; marks the choice finished."""
        asked = self.asked
        said = self._heard(choice, tokens)
        body = self._body(choice.tool, said)
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

    def _body(self, tool: ToolText, said: Said) -> bytes:
        if self.identity.form is Form.COMPLETIONS:
            return quote(said.content)
        calls = [tool_name_json(tool.call_id, tool.name)] if said.is_named else []
        if said.arguments:
            calls.append(tool_arguments_json(said.arguments))
        if not self._manners.parses_reasoning and not calls:
            return b'{"content":%b}' % quote(said.content)
        return delta_json(
            reasoning=said.reasoning,
            content=said.content,
            tool=b",".join(calls),
            null_reasoning=not self.asked.include_reasoning,
        )

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
        reasoning = choice.reasoning if self._parses_reasoning else None
        return usage_json(Usage(self.asked.prompt_tokens, choice.generated, reasoning), whole=False)

    def _total(self) -> Usage:
        generated = sum(choice.generated for choice in self.choices)
        reasoning = sum(choice.reasoning for choice in self.choices) if self._parses_reasoning else None
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

    def _whole_choice(self, choice: Choice) -> WholeChoice:
        whole = self._whole(choice)
        is_chat = self.identity.form is Form.CHAT
        return WholeChoice(
            finish=whole.finish,
            stop_reason=whole.stop_reason,
            content=whole.content or (None if is_chat else ""),
            reasoning=whole.reasoning or None,
            tool_call=whole.call,
            logprobs=self._logprobs(choice, choice.said),
            token_ids=extras.ids_json(token.number for token in choice.said) if self.asked.token_ids else NULL,
        )
