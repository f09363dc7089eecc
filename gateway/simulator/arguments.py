"""Which of vLLM's arguments change a simulated engine, and how.

Pure.  Takes the arguments that were given after ``vllm serve MODEL``, as a profile or a command has them, and returns
the preset with the limits replaced.  Arguments that the simulation does not know are left alone, as most change
nothing here; a value that cannot be read is an error, as it is for vLLM.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from gateway.simulator.presets import Preset

_SERVE = {
    "--max-num-seqs": "max_seqs",
    "--max-num-batched-tokens": "batched_tokens",
    "--max-num-queued-reqs": "max_queued",
    "--stream-interval": "stream_interval",
}


class BadArgument(ValueError):
    """An argument of the engine has a value that cannot be read; the process ends with code 2."""


def find(arguments: Sequence[str], name: str) -> str | None:
    """The value of ``--name value`` or ``--name=value``, the last one given; None when it is not there."""
    found: str | None = None
    for at, argument in enumerate(arguments):
        head, equals, value = argument.partition("=")
        if head != name:
            continue
        if equals:
            found = value
        else:
            found = arguments[at + 1] if at + 1 < len(arguments) else ""
    return found


def custom_allreduce(arguments: Sequence[str]) -> bool:
    """Whether vLLM's own all-reduce may be used."""
    return "--disable-custom-all-reduce" not in arguments


def configured(preset: Preset, arguments: Sequence[str]) -> Preset:
    """The preset as these arguments change it; raises BadArgument."""
    serve, pace, model = preset.serve, preset.pace, preset.model
    for name, field in _SERVE.items():
        number = _number(arguments, name)
        if number is not None:
            serve = replace(serve, **{field: number})
    longest = _number(arguments, "--max-model-len")
    if longest is not None:
        model = replace(model, max_model_len=longest)
    drafts = _drafts(arguments)
    if drafts is not None:
        pace = replace(pace, draft_tokens=drafts, acceptance=pace.acceptance or 0.7)
    return replace(preset, serve=serve, pace=pace, model=model)


def _number(arguments: Sequence[str], name: str) -> int | None:
    value = find(arguments, name)
    if value is None:
        return None
    if not value.isdigit() or int(value) < 1:
        raise BadArgument(f"argument {name}: invalid int value: {value!r}")
    return int(value)


def _drafts(arguments: Sequence[str]) -> int | None:
    value = find(arguments, "--speculative-config")
    if value is None:
        return None
    try:
        config = msgspec.json.decode(value, type=dict[str, object])
    except msgspec.MsgspecError as error:
        raise BadArgument(f"argument --speculative-config: invalid value: {value!r}") from error
    drafts = config.get("num_speculative_tokens")
    if not isinstance(drafts, int) or drafts < 0:
        raise BadArgument("argument --speculative-config: num_speculative_tokens must be a whole number")
    return drafts
