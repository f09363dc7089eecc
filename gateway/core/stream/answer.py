"""What has been seen so far of one answer: its choices, how they ended, the engine's own counts, an error.

Inside the tap; the readers of the four dialects write into it.  Bounded: choices beyond a limit are not followed
(the answer is then never called finished), reasons are kept once each, usage and metrics as the last one that came.
Must not hold text of the answer.
"""

from __future__ import annotations

from typing import Final

from msgspec import Raw

from gateway.core.stream.chunk import is_given, read_error, word
from gateway.core.stream.summary import EngineError
from gateway.core.stream.timeline import Timeline

_ABORTS: Final = frozenset({"abort", "error", "cancelled", "failed"})  # the last two are words of Responses
_MOST_CHOICES: Final = 65_536  # vLLM's own limit on n is 16,384 for each prompt
_MOST_REASONS: Final = 8


class Answer:
    """One answer as it unfolds; owner: one tap, or one call of `summarise_body`."""

    __slots__ = (
        "_finished",
        "aborted",
        "choices",
        "done",
        "error",
        "first_usage",
        "metrics",
        "reasons",
        "timeline",
        "tool_seen",
        "unfollowed",
        "usage",
        "usage_after_chunks",
        "usage_is_whole",
    )

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.choices: dict[int, bool] = {}  # index -> finished
        self._finished = 0
        self.unfollowed = False
        self.reasons: list[str] = []
        self.aborted = False
        self.done = False
        self.tool_seen = False
        self.error: EngineError | None = None
        self.usage: Raw | None = None
        self.first_usage: Raw | None = None  # where prompt tokens are told at the start and not again
        self.usage_after_chunks = 0
        self.usage_is_whole = False
        self.metrics: Raw | None = None

    def begin(self, index: int) -> None:
        """Note the first sign of the choice ``index``."""
        if len(self.choices) < _MOST_CHOICES:
            self.choices[index] = False
        else:
            self.unfollowed = True

    def finish(self, index: int, reason: str) -> None:
        """Note that the choice ``index``, begun before, ended for ``reason``."""
        if self.choices.get(index) is False:
            self.choices[index] = True
            self._finished += 1
        if reason in _ABORTS:
            self.aborted = True
        short = word(reason)
        if short not in self.reasons and len(self.reasons) < _MOST_REASONS:
            self.reasons.append(short)

    def take(self, *, usage: Raw, metrics: Raw, error: Raw, whole: bool) -> None:
        """Note what few events carry, `ABSENT` where they do not.

        ``whole``: the counts cover all choices, not only that of their event.
        """
        if is_given(usage):
            # A copy: the original keeps its whole event in memory.
            self.usage = usage.copy()
            self.usage_after_chunks = self.timeline.chunks
            self.usage_is_whole = whole
        if is_given(metrics):
            self.metrics = metrics.copy()
        if is_given(error):
            self.fail(error)

    def fail(self, error: bytes | Raw) -> None:
        """Note an error object that the engine sent; the first one counts."""
        if self.error is None:
            self.error = read_error(error)

    def is_terminal(self, expected_choices: int) -> bool:
        """Whether a stream has come to the engine's own good end: its end marker, and a good end of every choice."""
        return self.done and self.ended_well(expected_choices)

    def ended_well(self, expected_choices: int) -> bool:
        """Whether the engine gave every choice, known or expected, a reason to end, none of them an abort or error."""
        wanted = max(expected_choices, len(self.choices), 1)
        return self._finished >= wanted and not (self.aborted or self.unfollowed) and self.error is None
