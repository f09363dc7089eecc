"""What each key has used: requests and tokens by model today (UTC), and within the last minute.

Stepped by control with settled requests, and at its start with what the history knows of the day.  Records are best
effort, so counts may miss what was dropped on the way; limits are kept by the workers' own counts, not by these.
Pure: times of day are arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from gateway.core.admission.quota import MINUTE_S, day_of
from gateway.core.admission.window import Window


class UsageCount(Struct, frozen=True, kw_only=True):
    """Requests that a backend was asked to serve, and the tokens that they took; reasoning is part of completions."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Of prompts and answers together: what limits are about."""
        return self.prompt_tokens + self.completion_tokens

    def plus(self, other: UsageCount) -> UsageCount:
        """Both together."""
        return UsageCount(
            requests=self.requests + other.requests,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )


NOTHING = UsageCount()
_LEAST: Final = 0.5
"""Less than one request or token."""


class KeyUsage(Struct, frozen=True, kw_only=True):
    """The counts of one key.  ``since_wall``: midnight; ``complete``: the history of the day could be read.

    ``minute_empty_s``: when the minute will have forgotten all that is in it now.  ``held``: what counts against each
    of the key's limits, by the workers' own count, tokens that are set aside among it.
    """

    since_wall: float
    today: UsageCount
    models: dict[str, UsageCount]
    minute_requests: int
    minute_tokens: int
    complete: bool
    minute_empty_s: float = 0.0
    held: dict[str, int] = {}


class UsageRow(Struct, frozen=True, kw_only=True):
    """What the history knows of one key and model."""

    key_id: str
    model: str
    count: UsageCount


class _OfKey:
    """One key's counts; owned by the book."""

    __slots__ = ("models", "requests", "tokens")

    def __init__(self) -> None:
        self.models: dict[str, UsageCount] = {}
        self.requests = Window(MINUTE_S)
        self.tokens = Window(MINUTE_S)


class UsageBook:
    """Owner of the counts of the day."""

    def __init__(self, *, complete: bool = True) -> None:
        """``complete``: nothing of today is missing when the book begins."""
        self._complete = complete
        self._day = 0
        self._keys: dict[str, _OfKey] = {}

    def begin(self, rows: Iterable[UsageRow], *, now_wall: float) -> None:
        """What was used today before this book was begun."""
        self._turn(now_wall)
        self._complete = True
        for row in rows:
            models = self._of(row.key_id).models
            models[row.model] = models.get(row.model, NOTHING).plus(row.count)

    def add(self, key_id: str, model: str, count: UsageCount, *, now: float, now_wall: float) -> None:
        """A request has ended."""
        self._turn(now_wall)
        known = self._of(key_id)
        known.models[model] = known.models.get(model, NOTHING).plus(count)
        known.requests.add(count.requests, now)
        known.tokens.add(count.tokens, now)

    def _turn(self, now_wall: float) -> None:
        """Begin a new day when midnight has passed."""
        day = day_of(now_wall)
        if day != self._day:
            self._complete = self._complete or self._day != 0  # nothing is missing of a day that begins now
            self._day = day
            for known in self._keys.values():
                known.models.clear()

    def of(self, key_id: str, *, now: float, now_wall: float) -> KeyUsage:
        """The counts of one key."""
        self._turn(now_wall)
        known = self._keys.get(key_id) or _OfKey()
        today = NOTHING
        for count in known.models.values():
            today = today.plus(count)
        return KeyUsage(
            since_wall=self._day * 86400.0,
            today=today,
            models=dict(known.models),
            minute_requests=int(known.requests.level(now)),
            minute_tokens=int(known.tokens.level(now)),
            complete=self._complete,
            minute_empty_s=max(known.requests.falls_below(_LEAST, now), known.tokens.falls_below(_LEAST, now)),
        )

    def _of(self, key_id: str) -> _OfKey:
        known = self._keys.get(key_id)
        if known is None:
            known = self._keys[key_id] = _OfKey()
        return known
