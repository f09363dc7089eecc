"""What a request asks for, and the body of chat and completions: checked in vLLM's order with vLLM's words.

Pure.  Unknown fields, unknown roles and a missing model pass, as they do there.  A prompt is not tokenized: its
tokens are estimated from its text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container
from dataclasses import dataclass
from typing import Any, Final

from gateway.simulator import refusals
from gateway.simulator.prefix import prompt_keys
from gateway.simulator.request import SimRequest
from gateway.simulator.responses_shapes import Echo
from gateway.simulator.shapes import Form

# A word or number in pieces of at most six characters, or a single mark: about a tokenizer's cut of plain text.
_PIECE: Final = re.compile(r"\w{1,6}|[^\w\s]")
TEMPLATE_TOKENS: Final = 8  # what a chat template puts around one message, about
TOOL_TOKENS: Final = 20  # what one tool's description takes beside its name, about


@dataclass(frozen=True, slots=True)
class Limits:
    """What the server was started with, as far as it decides about a request."""

    model: str
    max_model_len: int
    adapters: Container[str] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, checked. ``max_tokens`` is already cut to the context; ``tool`` is the first tool's name."""

    form: Form
    prompt: str
    prompt_tokens: int
    max_tokens: int
    ignore_eos: bool = False
    n: int = 1
    seed: int | None = None
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    token_ids: bool = False
    include_reasoning: bool = True
    thinks: bool = True
    logprobs: int | None = None  # how many alternatives; None: not asked for
    tool: str = ""
    stop: tuple[str, ...] = ()
    echo: Echo | None = None  # what a response repeats of its request
    model: str = ""  # the adapter that is meant; "" for the model itself
    salt: str = ""  # keeps what is cached of this prompt from other requests


def read_chat(body: bytes, content_type: bytes, *, limits: Limits) -> Asked:
    """Return what a chat request asks for.

    Raises:
        Refused: with the answer of vLLM to a request that is not in order.
    """
    fields = object_of(body, content_type)
    if "messages" not in fields:
        raise refusals.invalid("missing", "body.messages", message="Field required", given=fields)
    messages = fields["messages"]
    if not isinstance(messages, list):
        raise refusals.invalid("list_type", "body.messages", message="Input should be a valid list", given=messages)
    common = _common(fields, limits=limits)
    check_model(fields, limits)
    if not messages:
        raise refusals.empty_conversation()
    prompt = _prompt_of(messages, limits.model)
    tools = [tool for tool in fields.get("tools") or [] if isinstance(tool, dict)]
    template = fields.get("chat_template_kwargs") or {}
    prompt_tokens = estimate_tokens(prompt) + TEMPLATE_TOKENS * len(messages) + TOOL_TOKENS * len(tools)
    return Asked(
        form=Form.CHAT,
        prompt=prompt,
        prompt_tokens=prompt_tokens,
        max_tokens=room_for(common.pop("max_tokens"), prompt_tokens, limits=limits),
        include_reasoning=fields.get("include_reasoning") is not False,
        thinks=template.get("enable_thinking") is not False,
        logprobs=int(fields.get("top_logprobs") or 0) if fields.get("logprobs") else None,
        tool="" if not tools or fields.get("tool_choice") == "none" else _name(tools[0]),
        **common,
    )


def read_completions(body: bytes, content_type: bytes, *, limits: Limits) -> Asked:
    """Return what a completions request asks for; raises ``Refused`` as :func:`read_chat` does."""
    fields = object_of(body, content_type)
    if "prompt" not in fields:
        raise refusals.invalid("missing", "body.prompt", message="Field required", given=fields)
    common = _common(fields, limits=limits)
    check_model(fields, limits)
    given = fields["prompt"]
    is_ids = isinstance(given, list) and all(isinstance(one, int) for one in given)
    prompt = "" if is_ids else str(given[0] if isinstance(given, list) and given else given)
    prompt_tokens = len(given) if is_ids else max(1, estimate_tokens(prompt))
    max_tokens = common.pop("max_tokens")
    logprobs = fields.get("logprobs")
    return Asked(
        form=Form.COMPLETIONS,
        prompt=prompt,
        prompt_tokens=prompt_tokens,
        max_tokens=room_for(16 if max_tokens is None else max_tokens, prompt_tokens, limits=limits),
        logprobs=None if logprobs is None or logprobs is False else int(logprobs),
        **common,
    )


def to_engine(asked: Asked) -> SimRequest:
    """Return a request as the engine takes it."""
    thinks = asked.thinks and asked.form is not Form.COMPLETIONS
    return SimRequest(
        prompt_tokens=asked.prompt_tokens,
        max_tokens=asked.max_tokens,
        ignore_eos=asked.ignore_eos,
        stream=asked.stream,
        n=asked.n,
        reasoning_share=None if thinks else 0.0,
        tools=(asked.tool,) if asked.tool else (),
        topic=asked.prompt,
        seed=asked.seed or 0,
        logprobs=asked.logprobs is not None,
        prefix=prompt_keys(pieces(asked.prompt), tokens=asked.prompt_tokens, tool=asked.tool, salt=asked.salt),
    )


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a tokenizer would make of ``text``."""
    return len(pieces(text))


def pieces(text: str) -> list[str]:
    """Return about the tokens that a tokenizer would make of ``text``."""
    return _PIECE.findall(text)


def object_of(body: bytes, content_type: bytes) -> dict[str, Any]:
    """Return the fields of a JSON body; raises ``Refused`` for one that is no object."""
    if not body:
        raise refusals.invalid("missing", "body", message="Field required", given=None)
    if b"json" not in content_type:
        raise refusals.no_json_type()
    try:
        fields = json.loads(body)
    except json.JSONDecodeError as error:
        raise refusals.bad_json(error) from None
    except UnicodeDecodeError:
        raise refusals.unreadable() from None
    if not isinstance(fields, dict):
        raise refusals.invalid(
            "model_attributes_type",
            "body",
            message="Input should be a valid dictionary or object to extract fields from",
            given=fields,
        )
    return fields


def _common(fields: dict[str, Any], *, limits: Limits) -> dict[str, Any]:
    """Check and read the fields that both APIs share."""
    max_tokens = _integer(fields, "max_tokens")
    completion_tokens = _integer(fields, "max_completion_tokens")
    n = _integer(fields, "n")
    options = _options(fields)
    is_stream = fields.get("stream") is True
    if options and not is_stream:
        raise refusals.bad_request("Stream options can only be defined when `stream=True`.", param="stream_options")
    if fields.get("tool_choice") not in (None, "none") and not fields.get("tools"):
        raise refusals.bad_request("When using `tool_choice`, `tools` must be set.", param="tool_choice")
    max_tokens = completion_tokens if completion_tokens is not None else max_tokens
    check_model(fields, limits)
    check_amounts(fields, n=n, max_tokens=max_tokens, limits=limits)
    stop = fields.get("stop") or ()
    return {
        "max_tokens": max_tokens,
        "n": 1 if n is None else n,
        "seed": _integer(fields, "seed"),
        "ignore_eos": fields.get("ignore_eos") is True,
        "stream": is_stream,
        "include_usage": options.get("include_usage") is True,
        "continuous_usage": options.get("include_usage") is True and options.get("continuous_usage_stats") is True,
        "token_ids": fields.get("return_token_ids") is True,
        "salt": _salt(fields),
        "model": adapter_of(fields, limits),
        "stop": (stop,) if isinstance(stop, str) else tuple(str(one) for one in stop),
    }


def _options(fields: dict[str, Any]) -> dict[str, Any]:
    options = fields.get("stream_options")
    if options is None:
        return {}
    if not isinstance(options, dict):
        words = "Input should be a valid dictionary or object to extract fields from"
        raise refusals.invalid("model_attributes_type", "body.stream_options", message=words, given=options)
    return options


def _salt(fields: dict[str, Any]) -> str:
    salt = fields.get("cache_salt")
    if salt is not None and (not isinstance(salt, str) or not salt):
        words = "Parameter 'cache_salt' must be a non-empty string if provided."
        raise refusals.bad_request(words, param="cache_salt")
    return salt or ""


def check_amounts(
    fields: dict[str, Any], *, n: int | None, max_tokens: int | None, limits: Limits, name: str = "max_tokens"
) -> None:
    """Refuse amounts that no model can have; ``name`` is what the API calls the limit of tokens."""
    temperature = fields.get("temperature")
    if isinstance(temperature, int | float) and temperature < 0:
        raise refusals.bad_request(
            f"temperature must be non-negative, got {float(temperature)}.",
            param="temperature",
            value=float(temperature),
        )
    if n is not None and n < 1:
        raise refusals.bad_request(f"n must be at least 1, got {n}.")
    if max_tokens is not None and max_tokens < 1:
        raise refusals.bad_request(
            f"max_tokens must be at least 1, got {max_tokens}.", param="max_tokens", value=max_tokens
        )
    if max_tokens is not None and max_tokens > limits.max_model_len:
        raise refusals.bad_request(
            f"{name}={max_tokens} cannot be greater than max_model_len={limits.max_model_len}. "
            "Please request fewer output tokens.",
            param=name,
            value=max_tokens,
        )


def check_model(fields: dict[str, Any], limits: Limits) -> None:
    """Refuse a model that is not served; none is the served one."""
    model = fields.get("model")
    if model and model != limits.model and not adapter_of(fields, limits):
        raise refusals.unknown_model(str(model), served=limits.model)


def adapter_of(fields: dict[str, Any], limits: Limits) -> str:
    """Return the adapter that a request means, "" where it means none."""
    model = fields.get("model")
    return model if isinstance(model, str) and model in limits.adapters else ""


def room_for(max_tokens: int | None, prompt_tokens: int, *, limits: Limits) -> int:
    """Return how many tokens the answer may have, or refuse a prompt that leaves none."""
    left = limits.max_model_len - prompt_tokens
    if left < 1:
        least = limits.max_model_len + 1
        raise refusals.bad_request(
            f"This model's maximum context length is {limits.max_model_len} tokens. However, your prompt contains at "
            f"least {least} input tokens, which exceeds this limit even without any output tokens. Please reduce the "
            "length of the input prompt.",
            param="input_tokens",
            value=least,
        )
    return left if max_tokens is None else min(max_tokens, left)


def _integer(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, str):
        if re.fullmatch(r"[+-]?\d+", value.strip()):
            return int(value)
        words = "Input should be a valid integer, unable to parse string as an integer"
        raise refusals.invalid("int_parsing", f"body.{name}", message=words, given=value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise refusals.invalid("int_type", f"body.{name}", message="Input should be a valid integer", given=value)


def _prompt_of(messages: list[Any], model: str) -> str:
    texts = []
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else message
        if isinstance(content, list):
            for part in content:
                if isinstance(part, dict) and part.get("type") not in (None, "text"):
                    raise refusals.not_multimodal(model)
            content = " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        texts.append(str(content or ""))
    return "\n".join(texts)


def _name(tool: dict[str, Any]) -> str:
    function = tool.get("function")
    return str(function.get("name", "")) if isinstance(function, dict) else ""
