"""How long each step of one engine takes: physics, injections in force, noise, and the limit of the API process.

Part of the engine machine.  Prices of a batch size are kept until an injection changes them.  Must not know of queues
or tokens' text.
"""

from __future__ import annotations

from random import Random

from gateway.simulator.drift import Drift, Drifts, Effects
from gateway.simulator.nccl import AllReduce
from gateway.simulator.noise import PaceNoise
from gateway.simulator.physics import decode_parts, prefill_s
from gateway.simulator.presets import Preset

_MERGING_STREAMS = 80  # at so many, half of what the front end lacks is merged, half is waited for
_RAMP_STEP_S = 5.0  # how often a cause that moves with time is looked at again


class Pacer:
    """Owner of an engine's noise and injections; instants must not go back."""

    __slots__ = ("_allreduce", "_base", "_loaded", "_look_again_at", "_preset", "_rng", "drifts", "effects", "noise")

    def __init__(self, preset: Preset, allreduce: AllReduce, rng: Random, *, started_at: float) -> None:
        self._preset = preset
        self._allreduce = allreduce
        self._rng = rng
        self.noise = PaceNoise(preset.noise, rng, started_at)
        self.drifts = Drifts(decode_parts(preset, allreduce, 1), context_s=preset.pace.context_s)
        self.effects = Effects()
        self._base: dict[int, tuple[float, float]] = {}
        self._look_again_at: float | None = None
        self._loaded = False

    def inject(self, drift: Drift, now: float) -> None:
        """Put an injection in force, or with magnitude 0 out of it."""
        self.drifts.put(drift, now)
        self._look(now)

    def step_s(self, at: float, *, decoding: int, context_tokens: int, prompt_tokens: int) -> float:
        """The time of the step that begins at ``at``; ``context_tokens`` are those of all that decode, together."""
        if self._loaded or decoding >= self._preset.noise.load_event_streams:
            self.noise.note_load(decoding, at)
            self._loaded = decoding >= self._preset.noise.load_event_streams
        if self._look_again_at is not None and at >= self._look_again_at:
            self._look(at)
        batch = decoding or 1
        base = self._base.get(batch)
        if base is None:
            base = self._base[batch] = self._price(batch)
        step_s = base[0] + base[1] * context_tokens
        if prompt_tokens:
            step_s += prefill_s(self._preset, self._allreduce, prompt_tokens) * self.effects.prefill
        step_s *= self.noise.factor(at)
        if self.effects.jitter_cv and decoding:
            step_s *= max(0.6, 1.0 + self.effects.jitter_cv * self._rng.gauss())
        floor_s = decoding / self._preset.pace.frontend_chunks_per_s
        return step_s if step_s >= floor_s else _held_back(step_s, floor_s, decoding)

    def _price(self, batch: int) -> tuple[float, float]:
        """(seconds of a step of ``batch`` sequences, seconds a token of context) under the effects in force."""
        effects = self.effects
        parts = decode_parts(self._preset, self._allreduce, batch)
        step_s = parts.memory_s * effects.memory + parts.wire_s * effects.wire + parts.clock_s * effects.clock
        return step_s * effects.whole, self._preset.pace.context_s * effects.memory * effects.whole

    def _look(self, at: float) -> None:
        self.effects = self.drifts.effects(at)
        self._look_again_at = at + _RAMP_STEP_S if self.effects.moving else None
        self._base.clear()


def _held_back(step_s: float, floor_s: float, streams: int) -> float:
    """A step faster than the API process can send: held back in part, the rest shows as merged tokens.

    Fitted to a recording: 64 streams of a 0.6B model came with 1.7 to 2.0 tokens a chunk at 20,000 tok/s, 256 streams
    of an 8B model with 1.07 at 12,000.
    """
    return step_s + (floor_s - step_s) * streams / (streams + _MERGING_STREAMS)
