"""The simulated engine: requests in, steps of continuous batching, tokens out, in virtual time.

The core of the simulator: deterministic for a seed, no clock, no I/O.  The caller sleeps until ``next_at`` and calls
``step`` with the time of then; in virtual time it calls ``step(next_at())``.  A step admits what waits, computes
prompts in chunks beside the decoding sequences, and gives one token (more with speculation) to each of those.
Everything here is a simulation: the text is invented, the times are computed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from collections.abc import Sequence as Arguments
from random import Random

from gateway.simulator.arguments import configured, custom_allreduce
from gateway.simulator.drift import Drift, DriftKind
from gateway.simulator.nccl import AllReduce, resolve
from gateway.simulator.pacer import Pacer
from gateway.simulator.presets import Preset
from gateway.simulator.request import Counters, Emission, EngineDead, QueueFull, SimRequest
from gateway.simulator.sequence import Sequence
from gateway.simulator.tally import Tally
from gateway.simulator.words import Vocabulary, answer

_LAG_S = 0.25  # a caller later than this has stalled: the engine does not run to make up for it


class SimEngine:
    """One engine from the moment that it serves; owner of its queue, its batch and its counters."""

    def __init__(
        self,
        preset: Preset,
        *,
        seed: int,
        environment: Mapping[str, str],
        arguments: Arguments[str],
        started_at: float,
    ) -> None:
        """``started_at``: when it began to serve; raises BadArgument where the arguments cannot be read.

        The outcome of NCCL's initialisation is in ``allreduce.outcome``: an engine that fails or hangs there is the
        loader's matter and must not be asked to serve.
        """
        self.preset = configured(preset, arguments)
        self.allreduce: AllReduce = resolve(
            preset.box, environment, hidden=preset.model.hidden, custom=custom_allreduce(arguments)
        )
        self._rng = Random(f"engine/{seed}")  # noqa: S311 - a simulation, no secret
        self.pacer = Pacer(self.preset, self.allreduce, self._rng, started_at=started_at)
        self._vocabulary = Vocabulary()
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._prefilling: list[Sequence] = []
        self._requests: dict[int, list[Sequence]] = {}
        self._last_id = 0
        self._due: float | None = None
        self._began = started_at
        self._duration_s = 0.0
        self._context_tokens = 0
        self._reserved_tokens = 0
        self._credit = 0.0
        self._turn = 0
        self._tally = Tally()
        self.hung = False
        self.dead = False

    # --- what callers do ------------------------------------------------------------------------

    def submit(self, request: SimRequest, now: float) -> int:
        """Take a request in; returns its number.  Raises QueueFull (503) or EngineDead (500)."""
        if self.dead:
            raise EngineDead
        limit = self.preset.serve.max_queued
        if limit is not None and len(self._waiting) >= limit:
            raise QueueFull
        self._last_id += 1
        share = self.preset.serve.reasoning_share if request.reasoning_share is None else request.reasoning_share
        garbage = self.pacer.drifts.has(DriftKind.GARBAGE)
        delay_s = self.preset.pace.prefill_fixed_s + self.pacer.effects.first_token_s
        made = []
        for choice in range(request.n):
            source = answer(request, self._vocabulary, choice=choice, reasoning_share=share, garbage=garbage)
            sequence = Sequence(request, source, request_id=self._last_id, choice=choice)
            sequence.interval = max(sequence.interval, self.preset.serve.stream_interval)
            sequence.prompt_left += self.pacer.effects.extra_prompt_tokens
            sequence.context = sequence.prompt_left
            sequence.reserved += self.pacer.effects.extra_prompt_tokens
            sequence.queued_at, sequence.eligible_at = now, now + delay_s
            made.append(sequence)
        self._requests[self._last_id] = made
        self._waiting.extend(made)
        if self._due is None and not self.hung:
            self._due = now + delay_s
        return self._last_id

    def abort(self, request_id: int, now: float) -> None:  # noqa: ARG002 - the contract has the instant
        """The client has left: nothing more comes for this request.  An unknown or finished one is nothing."""
        gone = self._requests.pop(request_id, None)
        if gone is None:
            return
        left = {id(sequence) for sequence in gone}
        self._waiting = deque(sequence for sequence in self._waiting if id(sequence) not in left)
        self._prefilling = [sequence for sequence in self._prefilling if id(sequence) not in left]
        for sequence in gone:
            if sequence in self._running:
                self._context_tokens -= sequence.context
            if sequence.scheduled_at is not None and sequence.finish is None:
                self._reserved_tokens -= sequence.reserved
        self._running = [sequence for sequence in self._running if id(sequence) not in left]
        if not self._requests:
            self._due, self._duration_s = None, 0.0

    def abort_all(self, now: float) -> list[Emission]:
        """The engine stops: what is pending leaves with the finish reason abort."""
        last = []
        for request_id, sequences in list(self._requests.items()):
            for sequence in sequences:
                if sequence.finish is None:
                    sequence.finish = "abort"
                    last.append(sequence.leave())
            self.abort(request_id, now)
        self._tally.finish("abort", len(last))
        return last

    def next_at(self) -> float | None:
        """When the next step ends; None when idle, hung or dead."""
        return self._due

    def inject(self, drift: Drift, now: float) -> None:
        """Switch an injection on, or with magnitude 0 off; it acts from the next step."""
        self.pacer.inject(drift, now)
        if drift.kind is DriftKind.CRASH and drift.magnitude:
            self.dead = True
            self._due = None
        elif drift.kind is DriftKind.HANG:
            self.hung = drift.magnitude > 0
            self._due = None if self.hung or not self._requests or self.dead else now

    def counters(self) -> Counters:
        """What the metrics page shows now."""
        return self._tally.counters(
            running=len(self._running) + len(self._prefilling),
            waiting=len(self._waiting),
            kv_cache_usage=min(1.0, self._kv_tokens() / self.preset.serve.kv_cache_tokens),
            extra_prompt_tokens=self.pacer.effects.extra_prompt_tokens,
        )

    # --- the step -------------------------------------------------------------------------------

    def step(self, now: float) -> list[Emission]:
        """End the step that is due and begin the next; the tokens that leave.  Nothing when none is due."""
        due = self._due
        if due is None or now < due:
            return []
        at = due if now - due < _LAG_S else now
        emissions: list[Emission] = []
        if self._duration_s:
            self._finish_step(at, emissions)
        self._begin_step(at)
        return emissions

    def _finish_step(self, at: float, emissions: list[Emission]) -> None:
        tally = self._tally
        decoding = len(self._running)
        tally.iterations += 1
        tally.inter_token_sum_s += self._duration_s * decoding
        tally.inter_token_count += decoding
        if self._prefilling:
            self._join(at)
        drafts = self.preset.pace.draft_tokens
        made = 0
        ended = False
        for sequence in self._running:
            count = 1 if not drafts else self._accepted(sequence)
            done = sequence.produce(count)
            sequence.context += done
            made += done
            sequence.last_at = at
            ended = ended or sequence.finish is not None
        self._context_tokens += made
        tally.generation_tokens += made
        self._send(emissions)
        if ended:
            self._retire()

    def _join(self, at: float) -> None:
        """Prompts that are computed to their end: their first token comes now."""
        for sequence in self._prefilling:
            if sequence.prompt_left == 0:
                sequence.first_at = at
                self._running.append(sequence)
                self._context_tokens += sequence.context
                self._tally.first_token(at - sequence.queued_at)
        self._prefilling = [sequence for sequence in self._prefilling if sequence.prompt_left]

    def _accepted(self, sequence: Sequence) -> int:
        if not sequence.made:
            return 1  # the prompt's own step has no drafts
        pace, tally = self.preset.pace, self._tally
        chance = pace.acceptance * self.pacer.effects.acceptance
        count = 0
        while count < pace.draft_tokens and self._rng.random() < chance:
            count += 1
        tally.drafts += 1
        tally.draft_tokens += pace.draft_tokens
        tally.accepted_tokens += count
        return count + 1

    def _send(self, emissions: list[Emission]) -> None:
        """Let out what is due, as far as the API process keeps up; what it leaves is merged with the next."""
        batch = self._running
        rate = self.preset.pace.frontend_chunks_per_s
        self._credit = min(self._credit, 1.0) + rate * self._duration_s
        if len(batch) <= self._credit:
            emissions.extend([sequence.leave() for sequence in batch if sequence.due()])
            return
        self._turn %= len(batch)
        served = 0
        for sequence in batch[self._turn :] + batch[: self._turn]:
            if not sequence.due() or (self._credit < 1 and sequence.finish is None):
                continue
            emissions.append(sequence.leave())
            self._credit -= 1
            served += 1
        self._turn += served

    def _retire(self) -> None:
        for sequence in self._running:
            if sequence.finish is None:
                continue
            self._context_tokens -= sequence.context
            self._reserved_tokens -= sequence.reserved
            self._tally.finish(sequence.finish, 1)
            others = self._requests.get(sequence.request_id, [])
            if all(other.finish is not None for other in others):
                self._requests.pop(sequence.request_id, None)
        self._running = [sequence for sequence in self._running if sequence.finish is None]

    def _begin_step(self, at: float) -> None:
        if self._waiting:
            self._admit(at)
        tokens = self._prefill_tokens() if self._prefilling else 0
        decoding = len(self._running)
        if not decoding and not tokens:
            self._duration_s = 0.0
            self._due = self._waiting[0].eligible_at if self._waiting else None
            return
        self._duration_s = self.pacer.step_s(
            at, decoding=decoding, context_tokens=self._context_tokens, prompt_tokens=tokens
        )
        self._due = at + self._duration_s

    def _admit(self, at: float) -> None:
        serve, waiting = self.preset.serve, self._waiting
        while waiting and waiting[0].eligible_at <= at:
            head = waiting[0]
            active = len(self._running) + len(self._prefilling)
            room = serve.kv_cache_tokens - self._reserved_tokens
            if active >= serve.max_seqs or (active and head.reserved > room):
                return
            waiting.popleft()
            head.scheduled_at = at
            self._reserved_tokens += head.reserved
            self._prefilling.append(head)
            self._tally.scheduled(head.prompt_left, at - head.queued_at)

    def _prefill_tokens(self) -> int:
        """Hand this step's budget of prompt tokens out, oldest first."""
        budget = self.preset.serve.batched_tokens - len(self._running)
        taken = 0
        for sequence in self._prefilling:
            share = min(sequence.prompt_left, max(1, budget - taken))
            sequence.prompt_left -= share
            taken += share
            if taken >= budget:
                break
        return taken

    def _kv_tokens(self) -> int:
        return self._context_tokens + sum(sequence.context for sequence in self._prefilling)
