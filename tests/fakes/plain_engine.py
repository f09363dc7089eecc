"""An engine machine with no physics: every running choice gets one token each ``step_s``, at most ``max_seqs`` run.

For tests of the simulator's face, where only the order of things counts.
"""

from __future__ import annotations

from collections.abc import Iterator

from gateway.simulator.request import Channel, Counters, Emission, EngineDead, SimRequest, Timing, Token
from gateway.simulator.words import Vocabulary, answer


class _Run:
    def __init__(self, number: int, choice: int, request: SimRequest, now: float, words: Iterator[Token]) -> None:
        self.number, self.choice, self.request, self.queued_at, self.words = number, choice, request, now, words
        self.scheduled_at = self.first_at = 0.0
        self.generated = self.reasoning = 0


class PlainEngine:
    def __init__(self, *, step_s: float = 0.002, max_seqs: int = 256) -> None:
        self._step_s, self._max_seqs = step_s, max_seqs
        self._vocabulary = Vocabulary()
        self._runs: list[_Run] = []
        self._waiting: list[_Run] = []
        self._at: float | None = None
        self._last = 0
        self.is_dead = False
        self.generated = self.prompted = 0
        self.finished: dict[str, int] = {}

    def submit(self, request: SimRequest, now: float) -> int:
        if self.is_dead:
            raise EngineDead
        self._last += 1
        share = 0.5 if request.reasoning_share is None else request.reasoning_share
        for choice in range(request.n):
            words = answer(request, self._vocabulary, choice=choice, reasoning_share=share)
            self._waiting.append(_Run(self._last, choice, request, now, words))
        self.prompted += request.prompt_tokens
        self._at = self._at if self._at is not None else now + self._step_s
        return self._last

    def abort(self, request_id: int, now: float) -> None:
        self._runs = [run for run in self._runs if run.number != request_id]
        self._waiting = [run for run in self._waiting if run.number != request_id]

    def next_at(self) -> float | None:
        return self._at

    def step(self, now: float) -> list[Emission]:
        while self._waiting and len(self._runs) < self._max_seqs:
            run = self._waiting.pop(0)
            run.scheduled_at = now
            self._runs.append(run)
        emissions = [self._token(run, now) for run in self._runs]
        self._runs = [run for run, emission in zip(self._runs, emissions, strict=True) if emission.finish is None]
        self._at = now + self._step_s if self._runs or self._waiting else None
        return emissions

    def _token(self, run: _Run, now: float) -> Emission:
        token = next(run.words)
        run.generated += 1
        self.generated += 1
        run.first_at = run.first_at or now
        run.reasoning += token.channel is Channel.REASONING
        is_end = token.channel is Channel.MARKER and not token.text
        finish = ("tool_calls" if run.request.tools else "stop") if is_end else None
        if finish is None and run.generated >= run.request.max_tokens:
            finish = "length"
        timing = None
        if finish:
            self.finished[finish] = self.finished.get(finish, 0) + 1
            timing = Timing(
                queued_at=run.queued_at, scheduled_at=run.scheduled_at, first_token_at=run.first_at, last_token_at=now
            )
        return Emission(run.number, run.choice, (token,), finish, run.generated, run.reasoning, timing)

    def counters(self) -> Counters:
        return Counters(
            running=len(self._runs), waiting=len(self._waiting), kv_cache_usage=0.01 * len(self._runs),
            prompt_tokens_total=self.prompted, generation_tokens_total=self.generated, iterations_total=0,
            finished=dict(self.finished), drafts_total=0, draft_tokens_total=0, accepted_tokens_total=0,
            ttft_sum_s=0.0, ttft_count=0, inter_token_sum_s=0.0, inter_token_count=0, queue_sum_s=0.0,
            extra_prompt_tokens=0,
        )  # fmt: skip
