"""Who runs in a simulated engine: the queue, the prompts being computed, the batch, and the blocks that all need.

Part of the engine machine.  Sequences are admitted in order of arrival when the cache has room for the context that
they have now; when a running one needs a block and there is none, the one that came last gives its blocks back, goes to
the head of the queue, and its context is computed again.  Must not know of pace or of what tokens say.
"""

from __future__ import annotations

from collections import deque

from gateway.simulator.kv_cache import BLOCK_TOKENS, KvCache
from gateway.simulator.presets import ServeSpec
from gateway.simulator.sequence import Sequence


class Scheduler:
    """Owner of the queue, the batch and the cache."""

    __slots__ = ("_drafts", "_order", "_serve", "cache", "context_tokens", "prefilling", "running", "short", "waiting")

    def __init__(self, serve: ServeSpec, *, drafts: int) -> None:
        """``drafts``: tokens that a step may add to a sequence beside the first."""
        self._serve = serve
        self._drafts = drafts
        self._order = 0
        self.cache = KvCache(serve.kv_cache_tokens, caches=serve.prefix_caching)
        self.waiting: deque[Sequence] = deque()
        self.prefilling: list[Sequence] = []
        self.running: list[Sequence] = []
        self.short: list[Sequence] = []  # running ones that need more room before their next step
        self.context_tokens = 0  # of all that run, together

    def active(self) -> int:
        """How many sequences have left the queue."""
        return len(self.running) + len(self.prefilling)

    def queue(self, sequence: Sequence) -> None:
        """Take a new one in, at the end of the queue."""
        self._order += 1
        sequence.order = self._order
        self.waiting.append(sequence)

    def drop(self, gone: list[Sequence]) -> None:
        """Forget these wherever they are, and give their blocks back."""
        left = {id(sequence) for sequence in gone}
        self.context_tokens -= sum(sequence.context for sequence in self.running if id(sequence) in left)
        self.waiting = deque(sequence for sequence in self.waiting if id(sequence) not in left)
        self.prefilling = [sequence for sequence in self.prefilling if id(sequence) not in left]
        self.running = [sequence for sequence in self.running if id(sequence) not in left]
        self.short = [sequence for sequence in self.short if id(sequence) not in left]
        for sequence in gone:
            self.cache.release(sequence.hold)

    def retire(self) -> list[Sequence]:
        """Take those out of the batch that have come to their end."""
        ended = [sequence for sequence in self.running if sequence.finish is not None]
        self.running = [sequence for sequence in self.running if sequence.finish is None]
        self.short = [sequence for sequence in self.short if sequence.finish is None]
        for sequence in ended:
            self.context_tokens -= sequence.context
            self.cache.release(sequence.hold)
        return ended

    def make_room(self) -> int:
        """Give each that is short its next block; returns how many had to give way for that."""
        preempted = 0
        for sequence in sorted(self.short, key=_order):
            while sequence.hold.blocks:  # else it gave way itself
                tokens = sequence.context + self._drafts
                if self.cache.grow(sequence.hold, tokens=tokens, forced=self.active() == 1):
                    sequence.covered = sequence.hold.blocks * BLOCK_TOKENS - self._drafts
                    break
                self._preempt(max(self.running + self.prefilling, key=_order))
                preempted += 1
        self.short.clear()
        return preempted

    def _preempt(self, last: Sequence) -> None:
        if last in self.running:
            self.running.remove(last)
            self.context_tokens -= last.context
        else:
            self.prefilling.remove(last)
        self.cache.release(last.hold)
        last.covered = last.prompt_left = 0
        last.preemptions += 1
        last.is_fresh = True
        self.waiting.appendleft(last)

    def schedule(self, at: float, *, admits: bool = True) -> tuple[list[Sequence], int, float]:
        """Hand this step's budget of prompt tokens out, to those that have begun and then to those that are due.

        Returns (those let in, tokens, what these look back at, summed up).  ``admits`` False lets nobody in: right
        after somebody had to give way.
        """
        budget = max(1, self._serve.batched_tokens - len(self.running))
        admitted: list[Sequence] = []
        taken, looks = 0, 0.0
        for sequence in self.prefilling:
            if taken >= budget:
                break
            share, behind = self._compute(sequence, budget - taken)
            taken, looks = taken + share, looks + behind
        while admits and taken < budget and (head := self._admit(at)) is not None:
            share, behind = self._compute(head, budget - taken)
            taken, looks = taken + share, looks + behind
            admitted.append(head)
        return admitted, taken, looks

    def _admit(self, at: float) -> Sequence | None:
        """Let the head of the queue in, if it is due and there is room for all of its context."""
        if not self.waiting or self.waiting[0].eligible_at > at or self.active() >= self._serve.max_seqs:
            return None
        head = self.waiting[0]
        found = self.cache.found(head.keys, head.context)
        forced = not self.active()
        if not self.cache.admit(head.hold, head.keys, context_tokens=head.context, found=found, forced=forced):
            return None
        self.waiting.popleft()
        head.covered = head.hold.blocks * BLOCK_TOKENS - self._drafts
        head.prompt_left = head.context - found * BLOCK_TOKENS
        if head.cached is None:
            head.cached = found * BLOCK_TOKENS
        self.prefilling.append(head)
        return head

    def _compute(self, sequence: Sequence, budget: int) -> tuple[int, float]:
        """Give a prompt its share of a step: (tokens, what they look back at); what is whole can be found from now."""
        share = min(sequence.prompt_left, budget)
        looks = share * (sequence.context - sequence.prompt_left + share / 2)
        sequence.prompt_left -= share
        self.cache.offer(sequence.hold, sequence.keys, sequence.context - sequence.prompt_left)
        return share, looks

    def join(self) -> list[Sequence]:
        """Put those whose context is computed into the batch; returns them."""
        ready = [sequence for sequence in self.prefilling if sequence.prompt_left == 0]
        self.prefilling = [sequence for sequence in self.prefilling if sequence.prompt_left]
        self.running += ready
        self.context_tokens += sum(sequence.context for sequence in ready)
        return ready


def _order(sequence: Sequence) -> int:
    return sequence.order
