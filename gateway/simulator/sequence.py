"""One choice of one request inside the engine, from the queue to its last token; and the reading of a batch's tokens.

Owned by the engine machine, which alone changes it.  Must not know of time beyond the instants it is handed.
"""

from __future__ import annotations

from collections.abc import Iterator

from gateway.simulator.request import Channel, Emission, SimRequest, Timing, Token
from gateway.simulator.words import END

_HOLD = 1 << 60  # an answer that is not streamed leaves in one piece


class Sequence:
    """Mutable on purpose: it is touched once a token, a hundred thousand times a second."""

    __slots__ = (
        "choice",
        "context",
        "eligible_at",
        "finish",
        "first_at",
        "interval",
        "last_at",
        "limit",
        "made",
        "pending",
        "prompt_left",
        "queued_at",
        "reasoning",
        "request_id",
        "reserved",
        "scheduled_at",
        "source",
        "tooled",
    )

    def __init__(self, request: SimRequest, source: Iterator[Token], *, request_id: int, choice: int) -> None:
        self.request_id = request_id
        self.choice = choice
        self.source = source
        self.limit = request.max_tokens
        self.interval = 1 if request.stream else _HOLD
        self.prompt_left = request.prompt_tokens
        self.context = request.prompt_tokens
        self.reserved = request.prompt_tokens + request.max_tokens
        self.made = 0
        self.reasoning = 0
        self.pending: list[Token] = []
        self.tooled = False
        self.finish: str | None = None
        self.queued_at = 0.0
        self.eligible_at = 0.0
        self.scheduled_at: float | None = None
        self.first_at: float | None = None
        self.last_at: float | None = None

    def produce(self, count: int) -> int:
        """Make up to ``count`` tokens; returns how many; sets ``finish`` at the end token or the limit."""
        pending, source = self.pending, self.source
        for done in range(1, count + 1):
            token = next(source)
            pending.append(token)
            self.made += 1
            channel = token.channel
            if channel is Channel.REASONING:
                self.reasoning += 1
            elif channel is Channel.TOOL:
                self.tooled = True
            if token is END:
                self.finish = "tool_calls" if self.tooled else "stop"
                return done
            if self.made >= self.limit:
                self.finish = "length"
                return done
        return count

    def due(self) -> bool:
        """Whether what is pending should leave: the first token, every interval, the end."""
        return (
            self.finish is not None or len(self.pending) >= self.interval or (self.made == 1 and self.interval < _HOLD)
        )

    def leave(self) -> Emission:
        """Everything pending, as one emission."""
        tokens = tuple(self.pending)
        self.pending.clear()
        timing = None if self.finish is None else self.timing()
        return Emission(self.request_id, self.choice, tokens, self.finish, self.made, self.reasoning, timing)

    def timing(self) -> Timing:
        """The instants of this choice so far."""
        return Timing(
            queued_at=self.queued_at,
            scheduled_at=self.scheduled_at,
            first_token_at=self.first_at,
            last_token_at=self.last_at,
        )
