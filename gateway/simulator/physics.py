"""What a step of a simulated engine takes: weights, all-reduces, overhead, sequences, context, prompts.

Pure arithmetic on a preset and its all-reduce; no noise, no time.  A decode step reads the dense weights and those
experts that any of its tokens is routed to, on every GPU its share; it pays ``allreduces_per_layer`` x layers times
the all-reduce of its payload; overhead follows the SM clock, reading the memory.  Seconds, bytes, tokens.
"""

from __future__ import annotations

from msgspec import Struct

from gateway.simulator.nccl import AllReduce
from gateway.simulator.presets import Preset


class StepParts(Struct, frozen=True, gc=False):
    """The parts of a decode step, in seconds: what memory, wires and SM clock decide."""

    memory_s: float
    wire_s: float
    clock_s: float

    def total_s(self) -> float:
        """The step without context and noise."""
        return self.memory_s + self.wire_s + self.clock_s


def payload_bytes(preset: Preset, tokens: int) -> int:
    """What one all-reduce carries for so many tokens (drafts included): hidden size x 2 bytes x tokens."""
    return preset.model.hidden * 2 * tokens


def active_bytes(preset: Preset, tokens: int) -> float:
    """Weights read by a step over so many tokens, all GPUs together; routing is taken as even and independent."""
    model = preset.model
    if model.experts == 0:
        return model.dense_bytes
    missed = (1.0 - model.experts_per_token / model.experts) ** tokens
    return model.dense_bytes + model.expert_bytes * (1.0 - missed)


def decode_parts(preset: Preset, allreduce: AllReduce, sequences: int) -> StepParts:
    """A decode step of so many sequences, drafts included, context not."""
    box, pace, model = preset.box, preset.pace, preset.model
    tokens = sequences * (1 + pace.draft_tokens)
    per_gpu = active_bytes(preset, tokens) / box.gpus
    return StepParts(
        memory_s=per_gpu / (box.bandwidth_bytes_per_s * box.bandwidth_share),
        wire_s=model.layers * model.allreduces_per_layer * _wire_s(allreduce, payload_bytes(preset, tokens), sequences),
        clock_s=pace.overhead_s + pace.sequence_s * sequences,
    )


def _wire_s(allreduce: AllReduce, payload: int, streams: int) -> float:
    return allreduce.seconds(payload, streams=streams) + allreduce.in_step_s(payload)


class PrefillParts(Struct, frozen=True, gc=False):
    """What prompt tokens add to a step, in seconds: computing and attention, and their all-reduces."""

    computing_s: float
    wire_s: float


def prefill_parts(preset: Preset, allreduce: AllReduce, tokens: int, *, looks: float = 0.0) -> PrefillParts:
    """So many prompt tokens in one step.

    ``looks`` is the sum over these tokens of the tokens before each: n x (before + n / 2) for a piece of n.
    """
    if tokens == 0:
        return PrefillParts(0.0, 0.0)
    wires = preset.model.layers * preset.model.allreduces_per_layer
    return PrefillParts(
        computing_s=preset.pace.prefill_s * tokens + preset.pace.prefill_context_s * looks,
        wire_s=wires * allreduce.seconds(payload_bytes(preset, tokens)),
    )


def streams_that_slow_by(preset: Preset, allreduce: AllReduce, part: float, *, context_tokens: float, most: int) -> int:
    """How many streams beside a single one make its step longer by at least ``part``; at least 1, at most ``most``."""
    alone_s = decode_parts(preset, allreduce, 1).total_s()
    for streams in range(1, most):
        together_s = decode_parts(preset, allreduce, 1 + streams).total_s()
        if together_s + preset.pace.context_s * context_tokens * streams >= alone_s * (1 + part):
            return streams
    return most


def tokens_per_step(preset: Preset) -> float:
    """Expected tokens of a decode step of one sequence: 1 + a + a^2 + ... over the drafts."""
    acceptance = preset.pace.acceptance
    return sum(acceptance**at for at in range(preset.pace.draft_tokens + 1))


def single_stream_tps(preset: Preset, allreduce: AllReduce, *, context_tokens: float) -> float:
    """Decode rate of one stream at this mean context, without noise."""
    step_s = decode_parts(preset, allreduce, 1).total_s() + preset.pace.context_s * context_tokens
    return tokens_per_step(preset) / step_s
