"""The arguments that were given, as vLLM's log lists them.

Pure.  What vLLM never prints (keys) is not printed here either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

_SECRET: Final = frozenset({"api_key", "hf_token", "watermark_config"})
_LISTS: Final = frozenset({"served_model_name"})
_LONG: Final = {"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "dp": "data_parallel_size"}


def given_arguments(model: str, options: Mapping[str, Sequence[str]]) -> dict[str, object]:
    """Return name and value of each option, the model first."""
    told: dict[str, object] = {"model_tag": model, "model": model}
    for option, values in options.items():
        name = option.lstrip("-").replace("-", "_")
        name = _LONG.get(name, name)
        if not values and name.startswith("no_"):
            told[name.removeprefix("no_")] = False
        elif name in _SECRET:
            told[name] = "***"
        else:
            told[name] = list(values) if name in _LISTS else _value(values)
    return told


def _value(values: Sequence[str]) -> object:
    if not values:
        return True
    if len(values) > 1:
        return list(values)
    try:
        value: object = msgspec.json.decode(values[0])
    except msgspec.DecodeError:
        return values[0]
    return value
