"""Which of vLLM's arguments change a simulated engine, and how.

Pure.  Takes the arguments that were given after ``vllm serve MODEL``, as a profile or a command has them, and returns
the preset with the limits replaced.  Arguments that the simulation does not know are left alone, as most change
nothing here; a value that cannot be read is an error, as it is for vLLM.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from gateway.simulator.human_int import human_int
from gateway.simulator.kv_cache import BLOCK_TOKENS
from gateway.simulator.presets import Preset

_SERVE = {
    "--max-num-seqs": "max_seqs",
    "--max-num-batched-tokens": "batched_tokens",
    "--max-num-queued-reqs": "max_queued",
    "--stream-interval": "stream_interval",
}

_HUMAN = frozenset({"--max-model-len", "--max-num-batched-tokens"})  # read as 32k or 32K, too
_MEMORY_SHARE = 0.9  # of the card: vLLM's default, and what a preset's cache is stated for


class BadArgument(ValueError):
    """An argument of the engine has a value that cannot be read; the process ends with code 2."""


def find(arguments: Sequence[str], name: str) -> str | None:
    """The value of ``--name value`` or ``--name=value``, the last one given; None when it is not there.

    ``--long_name`` is ``--long-name``, as vLLM reads it.
    """
    found: str | None = None
    for at, argument in enumerate(arguments):
        head, equals, value = argument.partition("=")
        if head.replace("_", "-") != name:
            continue
        if equals:
            found = value
        else:
            found = arguments[at + 1] if at + 1 < len(arguments) else ""
    return found


def _flags(arguments: Sequence[str]) -> list[str]:
    return [argument.replace("_", "-") for argument in arguments if argument.startswith("--")]


def custom_allreduce(arguments: Sequence[str]) -> bool:
    """Whether vLLM's own all-reduce may be used."""
    return "--disable-custom-all-reduce" not in _flags(arguments)


def configured(preset: Preset, arguments: Sequence[str]) -> Preset:
    """The preset as these arguments change it; raises BadArgument."""
    serve, pace, model, box = preset.serve, preset.pace, preset.model, preset.box
    for name, field in _SERVE.items():
        number = _number(arguments, name)
        if number is not None:
            serve = replace(serve, **{field: number})
    serve = replace(serve, prefix_caching=_prefix_caching(arguments, serve.prefix_caching))
    is_auto = (find(arguments, "--max-model-len") or "auto").lower() in {"auto", "-1"}
    longest = None if is_auto else _number(arguments, "--max-model-len")
    if longest is not None:
        model = replace(model, max_model_len=longest)
    ranks = _number(arguments, "--tensor-parallel-size") or _number(arguments, "-tp") or box.gpus
    box = replace(box, gpus=min(ranks, box.gpus))
    drafts = _drafts(arguments)
    if drafts is not None:
        pace = replace(pace, draft_tokens=drafts, acceptance=pace.acceptance or 0.7)
    return replace(preset, serve=serve, pace=pace, model=model, box=box)


def with_cache(preset: Preset, arguments: Sequence[str], *, buffer_bytes: int) -> Preset:
    """The preset with the cache of keys and values that these arguments leave; raises BadArgument.

    A preset's ``kv_cache_tokens`` fill what 0.9 of a card has beside the weights.  Another share of the card, and
    ``buffer_bytes`` that NCCL takes of it beyond the normal, change them in proportion.
    """
    blocks = _number(arguments, "--num-gpu-blocks-override")
    if blocks is not None:
        return replace(preset, serve=replace(preset.serve, kv_cache_tokens=blocks * BLOCK_TOKENS))
    share = _share(arguments)
    if share == _MEMORY_SHARE and not buffer_bytes:
        return preset
    weights = (preset.model.dense_bytes + preset.model.expert_bytes) / preset.box.gpus
    stated = preset.box.memory_bytes * _MEMORY_SHARE - weights
    room = preset.box.memory_bytes * share - weights - buffer_bytes
    tokens = max(BLOCK_TOKENS, round(preset.serve.kv_cache_tokens * room / stated)) if stated > 0 else BLOCK_TOKENS
    return replace(preset, serve=replace(preset.serve, kv_cache_tokens=tokens))


def _share(arguments: Sequence[str]) -> float:
    value = find(arguments, "--gpu-memory-utilization")
    try:
        share = _MEMORY_SHARE if value is None else float(value)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise BadArgument(f"argument --gpu-memory-utilization: invalid value: {value!r}")
    return share


def _prefix_caching(arguments: Sequence[str], default: bool) -> bool:  # noqa: FBT001 - what holds without arguments
    on, off = "--enable-prefix-caching", "--no-enable-prefix-caching"
    given = [flag for flag in _flags(arguments) if flag in {on, off}]
    return given[-1] == on if given else default


def _number(arguments: Sequence[str], name: str) -> int | None:
    value = find(arguments, name)
    if value is None:
        return None
    try:
        number = human_int(value) if name in _HUMAN else int(value)
    except ValueError as error:
        raise BadArgument(f"argument {name}: invalid int value: {value!r}") from error
    if number < 1:
        raise BadArgument(f"argument {name}: invalid int value: {value!r}")
    return number


def _drafts(arguments: Sequence[str]) -> int | None:
    value = find(arguments, "--speculative-config")
    if value is None:
        return None
    try:
        config = msgspec.json.decode(value, type=dict[str, object])
    except msgspec.MsgspecError as error:
        raise BadArgument(f"argument --speculative-config: invalid value: {value!r}") from error
    drafts = config.get("num_speculative_tokens")
    if not isinstance(drafts, int) or isinstance(drafts, bool) or drafts < 0:
        raise BadArgument("argument --speculative-config: num_speculative_tokens must be a whole number")
    return drafts
