"""The arguments of ``vllm serve``, as far as the face and the process obey them.

Pure.  Arguments that only the engine machine obeys, and those that nothing here obeys, pass: a command line that is
valid for the real thing is valid here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.simulator.given import given_arguments
from gateway.simulator.human_int import human_int
from gateway.simulator.lora import may_update

_PORTS: Final = 65_535
_SPEC_METRICS: Final = ("none", "summary", "detailed")


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """What a server does about requests and signals. ``root`` is the model as given, ``model`` its served name."""

    model: str
    root: str
    version: str
    fingerprint: str
    max_model_len: int
    stream_interval: int
    parses_reasoning: bool
    parses_tools: bool
    request_metrics: bool
    prompt_details: bool
    tracks_load: bool
    request_id_headers: bool
    force_usage: bool
    api_keys: tuple[str, ...]
    shutdown_timeout_s: float
    max_queued_requests: int | None
    max_queued_tokens: int | None
    access_log: bool
    tensor_parallel: int
    memory_share: float
    given: dict[str, object]
    spec_metrics: str
    runs_adapters: bool
    updates_adapters: bool


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the preset says where the arguments say nothing."""

    model: str
    version: str
    max_model_len: int
    gpus: int


def options_of(arguments: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Return (values before the first option, the values of each option); ``--a=b`` and ``--a b`` mean the same."""
    free: list[str] = []
    options: dict[str, list[str]] = {}
    current = free
    for argument in arguments:
        if argument.startswith("-") and not argument[1:2].isdigit():
            name, equals, value = argument.partition("=")
            current = options.setdefault(name.replace("_", "-"), [])
            if equals:
                current.append(value)
        else:
            current.append(argument)
    return free, options


class TooManyRanks(ValueError):
    """More ranks than GPUs: vLLM ends with code 1 before there is an engine."""

    def __init__(self, ranks: int, *, gpus: int) -> None:
        super().__init__(
            f"World size ({ranks}) is larger than the number of available GPUs ({gpus}) in this node. If this is "
            "intentional and you are using:\n- ray, set '--distributed-executor-backend ray'.\n"
            "- multiprocessing, set '--nnodes' appropriately."
        )


def read_spec(
    arguments: Sequence[str], defaults: Defaults, *, environment: Mapping[str, str] | None = None
) -> ServerSpec:
    """Return what a command line asks for; ``vllm serve MODEL``, ``serve MODEL`` and ``MODEL`` all may begin it.

    Raises:
        ValueError: for a number that is none.
        TooManyRanks: for more of them than the preset has GPUs.
    """
    free, options = options_of(arguments)
    words = [word for word in free if word not in {"vllm", "serve"}]
    root = _last(options, "--model") or (words[0] if words else defaults.model)
    names = options.get("--served-model-name") or [root]
    digest = hashlib.sha256(" ".join(arguments).encode()).hexdigest()[:8]

    def number(name: str, default: int) -> int:
        text = _last(options, name)
        try:
            return human_int(text) if text else default
        except ValueError as error:
            raise ValueError(f"argument {name}: invalid value: {text!r}") from error

    is_auto = _last(options, "--max-model-len").lower() in {"", "auto", "-1"}
    ranks = number("--tensor-parallel-size", number("-tp", defaults.gpus))
    if ranks > defaults.gpus:
        raise TooManyRanks(ranks, gpus=defaults.gpus)
    level = _last(options, "--per-request-spec-decode-metrics") or "none"
    if level not in _SPEC_METRICS:
        raise ValueError(f"argument --per-request-spec-decode-metrics: invalid choice: {level!r}")
    keys = options.get("--api-key") or [(environment or {}).get("VLLM_API_KEY", "")]

    def bound(name: str) -> int | None:
        text = _last(options, name)
        return number(name, 0) if text else None

    return ServerSpec(
        model=names[0],
        root=root,
        version=defaults.version,
        fingerprint=f"vllm-{defaults.version}-{digest}",
        max_model_len=defaults.max_model_len if is_auto else number("--max-model-len", 0),
        stream_interval=max(1, number("--stream-interval", 1)),
        parses_reasoning="--reasoning-parser" in options,
        parses_tools="--enable-auto-tool-choice" in options or "--tool-call-parser" in options,
        request_metrics="--enable-per-request-metrics" in options,
        prompt_details="--enable-prompt-tokens-details" in options,
        tracks_load="--enable-server-load-tracking" in options,
        request_id_headers="--enable-request-id-headers" in options,
        force_usage="--enable-force-include-usage" in options,
        api_keys=tuple(key for key in keys if key),
        shutdown_timeout_s=float(_last(options, "--shutdown-timeout") or 0),
        max_queued_requests=bound("--max-num-queued-reqs"),
        max_queued_tokens=bound("--max-num-queued-tokens"),
        access_log="--disable-uvicorn-access-log" not in options,
        tensor_parallel=ranks,
        memory_share=float(_last(options, "--gpu-memory-utilization") or 0.9),
        given=given_arguments(root, options),
        spec_metrics=level,
        runs_adapters="--enable-lora" in options,
        updates_adapters=may_update(environment or {}),
    )


def read_address(arguments: Sequence[str], *, host: str, port: int) -> tuple[str, int]:
    """Return where to listen: what the arguments say of ``--host`` and ``--port``, else what is given.

    Raises:
        ValueError: for a port that is none.
    """
    _, options = options_of(arguments)
    given = _last(options, "--port") or str(port)
    if not given.isdigit() or not 0 < int(given) <= _PORTS:
        raise ValueError(f"argument --port: {given!r} is no port: they go from 1 to {_PORTS}")
    return _last(options, "--host") or host, int(given)


def read_uds(arguments: Sequence[str]) -> str:
    """Return the socket in the file system to listen on; empty where a port is meant."""
    return _last(options_of(arguments)[1], "--uds")


def _last(options: dict[str, list[str]], name: str) -> str:
    values = options.get(name)
    return values[-1] if values else ""
