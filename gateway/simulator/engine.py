"""The simulated engine: requests in, steps of continuous batching, tokens out, in virtual time.

The core of the simulator: deterministic for a seed, no clock, no I/O.  The caller sleeps until ``next_at`` and calls
``step`` with the time of then; in virtual time it calls ``step(next_at())``.  A step admits what waits, computes
prompts in chunks beside the decoding sequences, and gives one token (more with speculation) to each of those.
Everything here is a simulation: the text is invented, the times are computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Arguments
from random import Random

from gateway.simulator.arguments import configured, custom_allreduce, with_cache
from gateway.simulator.drift import OF_THE_PROCESS, Drift, DriftKind
from gateway.simulator.front_end import FrontEnd
from gateway.simulator.gpu import GpuHost
from gateway.simulator.nccl import AllReduce, resolve
from gateway.simulator.pacer import Pacer
from gateway.simulator.physics import payload_bytes
from gateway.simulator.presets import Preset
from gateway.simulator.request import Counters, Emission, EngineDead, QueueFull, SimRequest
from gateway.simulator.scheduler import Scheduler
from gateway.simulator.sequence import Sequence
from gateway.simulator.strangers import Strangers
from gateway.simulator.tally import Tally
from gateway.simulator.words import Vocabulary, answer
from gateway.simulator.xids import XidWatch

_LAG_S = 0.25  # a caller later than this has stalled: the engine does not run to make up for it


class SimEngine:
    """One engine from the moment that it serves; owner of its requests and its counters."""

    def __init__(
        self,
        preset: Preset,
        *,
        seed: int | str,
        environment: Mapping[str, str],
        arguments: Arguments[str],
        started_at: float,
        host: GpuHost | None = None,
    ) -> None:
        """``started_at``: when it began to serve; raises BadArgument where the arguments cannot be read.

        ``host``: the box that it runs on, with what is wrong there; engines that share it share that, and so does the
        next start.  The outcome of NCCL's initialisation is in ``allreduce.outcome``: an engine that fails or hangs
        there is the loader's matter and must not be asked to serve.
        """
        self.host = host if host is not None else GpuHost(preset.box)
        given = configured(preset, arguments)
        self.allreduce: AllReduce = resolve(
            self.host.as_met(given.box), environment, hidden=given.model.hidden, custom=custom_allreduce(arguments)
        )
        self.preset = with_cache(given, arguments, buffer_bytes=self.allreduce.extra_buffer_bytes())
        self._rng = Random(f"engine/{seed}")  # noqa: S311 - a simulation, no secret
        self.pacer = Pacer(self.preset, self.allreduce, self._rng, started_at=started_at, box=self.host.injections)
        self._xids = XidWatch(self.host, gpus=self.preset.box.gpus)
        self._scheduler = Scheduler(self.preset.serve, drafts=self.preset.pace.draft_tokens)
        self._strangers = Strangers()
        self._vocabulary = Vocabulary()
        self._requests: dict[int, list[Sequence]] = {}
        self._last_id = 0
        self._due: float | None = None
        self._duration_s = 0.0
        self._compiling_s = self.preset.pace.logprobs_compile_s
        self._drafts = self.preset.pace.draft_tokens
        self._front_end = FrontEnd(chunks_per_s=self.preset.pace.frontend_chunks_per_s)
        self._tally = Tally()
        self._may_corrupt = self.allreduce.may_corrupt()
        self.hung = False
        self.dead = False

    # --- what callers do ------------------------------------------------------------------------

    def submit(self, request: SimRequest, now: float) -> int:
        """Take a request in; returns its number.  Raises QueueFull (503) or EngineDead (500)."""
        if self.dead:
            raise EngineDead
        limit = self.preset.serve.max_queued
        if limit is not None and len(self._scheduler.waiting) >= limit:
            raise QueueFull
        self._last_id += 1
        self._take(request, self._last_id, now)
        return self._last_id

    def _take(self, request: SimRequest, number: int, now: float) -> None:
        pace, effects = self.preset.pace, self.pacer.effects
        share = self.preset.serve.reasoning_share if request.reasoning_share is None else request.reasoning_share
        garbage = self.pacer.drifts.has(DriftKind.GARBAGE)
        made = []
        for choice in range(request.n):
            source = answer(request, self._vocabulary, choice=choice, reasoning_share=share, garbage=garbage)
            sequence = Sequence(request, source, request_id=number, choice=choice)
            sequence.interval = max(sequence.interval, self.preset.serve.stream_interval)
            sequence.extra = effects.extra_prompt_tokens
            sequence.context += sequence.extra
            delay_s = pace.prefill_fixed_s + pace.tokenize_s * sequence.context + effects.first_token_s
            sequence.queued_at, sequence.eligible_at = now, now + delay_s
            self._scheduler.queue(sequence)
            made.append(sequence)
        self._requests[number] = made
        if self._due is None and not self.hung:
            self._due = made[0].eligible_at

    def abort(self, request_id: int, now: float) -> None:
        """The client has left: nothing more comes for this request.  An unknown or finished one is nothing."""
        gone = self._requests.pop(request_id, None)
        if gone is None:
            return
        self._scheduler.drop(gone)
        if not self._requests:
            self._rest(now)

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
        return self._strangers.without(last)

    def next_at(self) -> float | None:
        """When the next step ends; None when idle, hung or dead."""
        return self._due

    def inject(self, drift: Drift, now: float) -> None:
        """Switch an injection on, or with magnitude 0 off, in the process or on its box; it acts from the next step."""
        if drift.kind in OF_THE_PROCESS:
            self.pacer.inject(drift, now)
        else:
            self.host.inject(drift, now)
        if drift.kind is DriftKind.CRASH and drift.magnitude:
            self.dead = True
            self._due = None
        elif drift.kind is DriftKind.HANG:
            self.hung = drift.magnitude > 0
            self._due = None if self.hung or not self._requests or self.dead else now
        self.notice(now)

    def notice(self, now: float) -> None:
        """Look at the box now: somebody else may have injected something that an idle engine would not see."""
        if self._xids.is_killed():
            self.dead, self._due = True, None
        self.pacer.look(now)
        if not (self.hung or self.dead) and (self.pacer.foreign or self._strangers.ever):
            self._meet_strangers(now)

    def _meet_strangers(self, now: float) -> None:
        for number in self._strangers.surplus(self.pacer.foreign):
            self.abort(number, now)
        for number, request in self._strangers.missing():
            self._take(request, number, now)

    def counters(self) -> Counters:
        """What the metrics page shows now."""
        return self._tally.counters(
            running=self._scheduler.active(),
            waiting=len(self._scheduler.waiting),
            kv_cache_usage=self._scheduler.cache.usage(),
            extra_prompt_tokens=self.pacer.effects.extra_prompt_tokens,
        )

    def prompt_tokens_left(self) -> int:
        """Prompt tokens of admitted requests that are still to be computed."""
        return sum(sequence.prompt_left for sequence in self._scheduler.prefilling)

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
        if self.pacer.foreign or self._strangers.ever:
            self._meet_strangers(at)
            return self._strangers.without(emissions)
        return emissions

    def _finish_step(self, at: float, emissions: list[Emission]) -> None:
        tally, scheduler = self._tally, self._scheduler
        decoding = len(scheduler.running)
        tally.iterations += 1
        tally.inter_token_sum_s += self._duration_s * decoding
        tally.inter_token_count += decoding
        if scheduler.prefilling:
            self._join(at)
        drafts = self._drafts
        made = 0
        ended = False
        for sequence in scheduler.running:
            done = sequence.produce(1 if not drafts else self._accepted(sequence))
            sequence.context += done
            made += done
            sequence.last_at = at
            if sequence.finish is not None:
                ended = True
            elif sequence.context > sequence.covered:
                scheduler.short.append(sequence)
        scheduler.context_tokens += made
        tally.generation_tokens += made
        self._front_end.send(scheduler.running, emissions, duration_s=self._duration_s)
        if ended:
            self._retire()

    def _join(self, at: float) -> None:
        """Prompts that are computed to their end: their first token comes now."""
        for sequence in self._scheduler.join():
            if sequence.first_at is None:
                sequence.first_at = at
                self._tally.first_token(at - sequence.queued_at)

    def _accepted(self, sequence: Sequence) -> int:
        if sequence.is_fresh:
            sequence.is_fresh = False
            return 1  # the prompt's own step has no drafts
        pace, tally = self.preset.pace, self._tally
        chance = pace.acceptance * self.pacer.effects.acceptance
        count = 0
        while count < pace.draft_tokens and self._rng.random() < chance:
            count += 1
        sequence.accepted.append(count)
        tally.drafts += 1
        tally.draft_tokens += pace.draft_tokens
        tally.accepted_tokens += count
        return count + 1

    def _retire(self) -> None:
        for sequence in self._scheduler.retire():
            if sequence.finish is not None:
                self._tally.finish(sequence.finish, 1)
            others = self._requests.get(sequence.request_id, [])
            if all(other.finish is not None for other in others):
                self._requests.pop(sequence.request_id, None)
                self._strangers.ended(sequence.request_id)

    def _begin_step(self, at: float) -> None:
        scheduler = self._scheduler
        if scheduler.short or scheduler.waiting or scheduler.prefilling:
            waited_s, tokens, looks = self._schedule(at)
        else:
            waited_s, tokens, looks = 0.0, 0, 0.0  # nearly every step: all that there are have room and go on
        decoding = len(scheduler.running)
        if not decoding and not tokens:
            self._rest(at)
            return
        if self._may_corrupt and self.allreduce.corrupts(
            payload_bytes(self.preset, decoding * (1 + self._drafts) + tokens)
        ):
            self._spoil()
        self._duration_s = waited_s + self.pacer.step_s(
            at, decoding=decoding, context_tokens=scheduler.context_tokens, prompt_tokens=tokens, looks=looks
        )
        self._due = at + self._duration_s

    def _spoil(self) -> None:
        """The sums of this step are wrong: all that it computes is, and what follows from that."""
        for sequence in (*self._scheduler.running, *self._scheduler.prefilling):
            rng = Random(f"spoilt/{sequence.request_id}/{sequence.choice}")  # noqa: S311 - words, no secret
            sequence.spoil(self._vocabulary.spoilt(sequence.source, rng))

    def _schedule(self, at: float) -> tuple[float, int, float]:
        """See to room, queue and prompts: (what all must wait for, prompt tokens of this step, what they look at)."""
        scheduler = self._scheduler
        preempted = scheduler.make_room()
        self._tally.preemptions += preempted
        admitted, tokens, looks = scheduler.schedule(at, admits=not preempted)
        return self._welcome(admitted, at) if admitted else 0.0, tokens, looks

    def _rest(self, at: float) -> None:
        waiting = self._scheduler.waiting
        self._duration_s = 0.0
        self._due = waiting[0].eligible_at if waiting else None
        self.pacer.idle(at)

    def _welcome(self, admitted: list[Sequence], at: float) -> float:
        """Count those that left the queue; returns what all must wait for that is compiled now for the first time."""
        compiling_s = 0.0
        for sequence in admitted:
            if sequence.scheduled_at is None:
                sequence.scheduled_at = at
                self._tally.scheduled(sequence.context, at - sequence.queued_at)
                if self.preset.serve.prefix_caching:
                    self._tally.looked_up(sequence.context, sequence.cached or 0)
            if sequence.logprobs:
                compiling_s, self._compiling_s = compiling_s + self._compiling_s, 0.0
        return compiling_s
