"""The engine's own counters: totals since it serves.

Owned by one engine; the hot ones are plain attributes that the step adds to.  Must not decide anything.
"""

from __future__ import annotations

from gateway.simulator.request import Counters


class Tally:
    """Totals; only ever grow."""

    __slots__ = (
        "accepted_tokens",
        "draft_tokens",
        "drafts",
        "finished",
        "generation_tokens",
        "inter_token_count",
        "inter_token_sum_s",
        "iterations",
        "preemptions",
        "prefix_hits",
        "prefix_queries",
        "prompt_tokens",
        "queue_sum_s",
        "ttft_count",
        "ttft_sum_s",
    )

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.iterations = 0
        self.finished: dict[str, int] = {}
        self.drafts = 0
        self.draft_tokens = 0
        self.accepted_tokens = 0
        self.ttft_sum_s = 0.0
        self.ttft_count = 0
        self.inter_token_sum_s = 0.0
        self.inter_token_count = 0
        self.queue_sum_s = 0.0
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.preemptions = 0

    def scheduled(self, prompt_tokens: int, waited_s: float) -> None:
        """A sequence left the queue."""
        self.prompt_tokens += prompt_tokens
        self.queue_sum_s += waited_s

    def looked_up(self, prompt_tokens: int, found_tokens: int) -> None:
        """The tokens of a prompt were looked for in the cache."""
        self.prefix_queries += prompt_tokens
        self.prefix_hits += found_tokens

    def first_token(self, after_s: float) -> None:
        """A sequence has its first token."""
        self.ttft_sum_s += after_s
        self.ttft_count += 1

    def finish(self, reason: str, count: int) -> None:
        """So many choices ended for this reason."""
        if count:
            self.finished[reason] = self.finished.get(reason, 0) + count

    def counters(self, *, running: int, waiting: int, kv_cache_usage: float, extra_prompt_tokens: int) -> Counters:
        """The totals with these gauges beside them."""
        return Counters(
            running=running,
            waiting=waiting,
            kv_cache_usage=kv_cache_usage,
            prompt_tokens_total=self.prompt_tokens,
            generation_tokens_total=self.generation_tokens,
            iterations_total=self.iterations,
            finished=dict(self.finished),
            drafts_total=self.drafts,
            draft_tokens_total=self.draft_tokens,
            accepted_tokens_total=self.accepted_tokens,
            ttft_sum_s=self.ttft_sum_s,
            ttft_count=self.ttft_count,
            inter_token_sum_s=self.inter_token_sum_s,
            inter_token_count=self.inter_token_count,
            queue_sum_s=self.queue_sum_s,
            extra_prompt_tokens=extra_prompt_tokens,
            prefix_queries_total=self.prefix_queries,
            prefix_hits_total=self.prefix_hits,
            preemptions_total=self.preemptions,
        )
