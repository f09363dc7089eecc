"""How long each step of one engine takes: physics, injections in force, noise, and the limit of the API process.

Part of the engine machine.  Prices of a batch size are kept until an injection changes them.  Must not know of queues
or tokens' text.
"""

from __future__ import annotations

from math import inf
from random import Random

from gateway.simulator.drift import Drift, Injections
from gateway.simulator.drifting import Drifts
from gateway.simulator.effects import STALL_CHANCE, Effects
from gateway.simulator.nccl import AllReduce
from gateway.simulator.noise import PaceNoise
from gateway.simulator.physics import decode_parts, prefill_parts, streams_that_slow_by
from gateway.simulator.presets import Preset

_MERGING_STREAMS = 80  # at so many, half of what the front end lacks is merged, half is waited for
_RAMP_STEP_S = 5.0  # how often a cause that moves with time is looked at again
_FOREIGN_CONTEXT_TOKENS = 350.0  # what a stranger's answer has on average


class Pacer:
    """Owner of an engine's noise and injections; instants must not go back."""

    __slots__ = (
        "_allreduce", "_base", "_box", "_chunks_per_s", "_debt_s", "_load_streams", "_loaded", "_look_again_at",
        "_own", "_preset", "_rng", "_turn", "_version", "drifts", "effects", "foreign", "noise",
    )  # fmt: skip

    def __init__(
        self, preset: Preset, allreduce: AllReduce, rng: Random, *, started_at: float, box: Injections | None = None
    ) -> None:
        """``box``: the injections that this engine shares with whatever runs on its box."""
        self._preset = preset
        self._allreduce = allreduce
        self._rng = rng
        self.noise = PaceNoise(preset.noise, rng, started_at)
        self.drifts = Drifts(decode_parts(preset, allreduce, 1), context_s=preset.pace.context_s, box=box)
        self._own, self._box = self.drifts.own, self.drifts.box
        self._load_streams = preset.noise.load_event_streams
        self._chunks_per_s = preset.pace.frontend_chunks_per_s
        self.effects = Effects()
        self.foreign = 0  # streams of strangers that the engine has now
        self._base: dict[int, tuple[float, float]] = {}
        self._look_again_at = inf
        self._loaded = False
        self._debt_s = 0.0  # of a stall that the next step makes good
        self._turn = 0.5  # a co-tenant's claim on the card, in turns
        self._version = -1
        self.look(started_at)

    def inject(self, drift: Drift, now: float) -> None:
        """Put an injection of the process in force, or with magnitude 0 out of it."""
        self.drifts.own.put(drift, now)
        self.look(now)

    def look(self, at: float) -> None:
        """See what is in force, where that has changed or moves with time."""
        version = self.drifts.version()
        if version == self._version and not self.effects.moving:
            return
        self._version = version
        self.effects = self.drifts.effects(at)
        self._look_again_at = at + _RAMP_STEP_S if self.effects.moving else inf
        self.foreign = self._foreign_streams()
        self._base.clear()

    def _foreign_streams(self) -> int:
        part, most = self.effects.foreign, max(1, self._preset.serve.max_seqs - 1)
        if not part:
            return 0
        return streams_that_slow_by(
            self._preset, self._allreduce, part, context_tokens=_FOREIGN_CONTEXT_TOKENS, most=most
        )

    def idle(self, at: float) -> None:
        """Nothing runs: a load, if there was one, is over."""
        self.noise.note_load(0, at)
        self._loaded = False

    def step_s(self, at: float, *, decoding: int, context_tokens: int, prompt_tokens: int, looks: float = 0.0) -> float:
        """The time of the step that begins at ``at``; ``context_tokens`` are those of all that decode, together.

        ``looks``: what the prompt tokens look back at, summed up (see ``physics.prefill_parts``).
        """
        if self._loaded or decoding >= self._load_streams:
            self.noise.note_load(decoding, at)
            self._loaded = decoding >= self._load_streams
        if self._own.version + self._box.version != self._version or at >= self._look_again_at:
            self.look(at)
        batch = decoding or 1
        base = self._base.get(batch)
        if base is None:
            base = self._base[batch] = self._price(batch)
        step_s = base[0] + base[1] * context_tokens
        if prompt_tokens:
            step_s += self._prefill_s(prompt_tokens, looks)
        step_s *= self.noise.factor(at)
        if decoding and (self.effects.is_rough or self._debt_s):
            step_s = self._roughened(step_s)
        floor_s = decoding / self._chunks_per_s
        return step_s if step_s >= floor_s else _held_back(step_s, floor_s, decoding)

    def _price(self, batch: int) -> tuple[float, float]:
        """(seconds of a step of ``batch`` sequences, seconds a token of context) under the effects in force."""
        effects = self.effects
        parts = decode_parts(self._preset, self._allreduce, batch)
        step_s = parts.memory_s * effects.memory + parts.wire_s * effects.wire + parts.clock_s * effects.clock
        return step_s * effects.whole, self._preset.pace.context_s * effects.memory * effects.whole

    def _prefill_s(self, tokens: int, looks: float) -> float:
        effects = self.effects
        parts = prefill_parts(self._preset, self._allreduce, tokens, looks=looks)
        return (parts.computing_s * effects.prefill + parts.wire_s * effects.wire) * effects.whole

    def _roughened(self, step_s: float) -> float:
        """A step while others use the card or the cores: whole turns of a co-tenant, stalls of the host."""
        effects, plain_s = self.effects, step_s
        if effects.shared:
            # Its turns are as long as ours or longer, and come at regular distances: recorded spread 0.1 %.
            self._turn += min(1.0, effects.shared)
            if self._turn >= 1.0:
                self._turn -= 1.0
                step_s += plain_s * max(1.0, effects.shared)
        paid_s = min(self._debt_s, 0.8 * plain_s)
        self._debt_s -= paid_s
        step_s -= paid_s
        if effects.hiccup_s and self._rng.random() < STALL_CHANCE:
            length = 0.5 + self._rng.random()
            step_s += length * (effects.hiccup_s + plain_s * effects.stalls / STALL_CHANCE)
            self._debt_s += length * effects.hiccup_s
        return step_s


def _held_back(step_s: float, floor_s: float, streams: int) -> float:
    """A step faster than the API process can send: held back in part, the rest shows as merged tokens.

    Fitted to a recording: 64 streams of a 0.6B model came with 1.7 to 2.0 tokens a chunk at 20,000 tok/s, 256 streams
    of an 8B model with 1.07 at 12,000.
    """
    return step_s + (floor_s - step_s) * streams / (streams + _MERGING_STREAMS)
