"""One choice of one request inside the engine, from the queue to its last token; and the reading of a batch's tokens.

Owned by the engine machine, which alone changes it.  Must not know of time beyond the instants it is handed.
"""

from __future__ import annotations

from collections.abc import Iterator

from gateway.simulator.kv_cache import Hold
from gateway.simulator.request import Channel, Emission, SimRequest, Timing, Token
from gateway.simulator.words import END

_HOLD = 1 << 60  # an answer that is not streamed leaves in one piece


class Sequence:
    """Mutable on purpose: it is touched once a token, a hundred thousand times a second."""

    __slots__ = (
        "accepted",
        "cached",
        "choice",
        "context",
        "covered",
        "eligible_at",
        "extra",
        "finish",
        "first_at",
        "hold",
        "interval",
        "is_fresh",
        "keys",
        "last_at",
        "limit",
        "logprobs",
        "made",
        "order",
        "pending",
        "preemptions",
        "prompt_left",
        "queued_at",
        "reasoning",
        "request_id",
        "scheduled_at",
        "source",
        "spoilt",
        "tooled",
    )

    def __init__(self, request: SimRequest, source: Iterator[Token], *, request_id: int, choice: int) -> None:
        self.request_id = request_id
        self.choice = choice
        self.source = source
        self.spoilt = False
        self.limit = request.max_tokens
        self.interval = 1 if request.stream else _HOLD
        self.order = 0  # of arrival: who came last gives way first
        self.extra = 0  # prompt tokens that a shift of context added
        self.context = request.prompt_tokens  # tokens that are or will be in the cache, the newest one included
        self.prompt_left = 0  # of the context, what is still to be computed before the next token
        self.covered = 0  # so many tokens of context the blocks that it holds allow
        self.keys = request.prefix
        self.hold = Hold()
        self.cached: int | None = None  # prompt tokens that were found computed, once it is known
        self.preemptions = 0
        self.is_fresh = True  # its next token comes from computing its context, without drafts
        self.logprobs = request.logprobs
        self.made = 0
        self.accepted: list[int] = []  # drafts that each step with drafts kept
        self.reasoning = 0
        self.pending: list[Token] = []
        self.tooled = False
        self.finish: str | None = None
        self.queued_at = 0.0
        self.eligible_at = 0.0
        self.scheduled_at: float | None = None
        self.first_at: float | None = None
        self.last_at: float | None = None

    def spoil(self, garbage: Iterator[Token]) -> None:
        """What comes from now on is garbage: its keys and values are wrong.  Once is enough."""
        if not self.spoilt:
            self.spoilt = True
            self.source = garbage

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
            cached_tokens=self.cached or 0,
            extra_prompt_tokens=self.extra,
            preemptions=self.preemptions,
            accepted=tuple(self.accepted),
        )
