"""What a request asks of the engine, held against the policy: caps, refusals, media, depth and size.

Station admit, once the body is parsed.  The rules are data: a field that is not there costs nothing, and one without a
rule is the engine's to judge.  A refusal names the field, its value where that is a number, and the setting.  What
cannot be told to be within a cap is refused too: the engine may read it otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec import Raw, Struct

from gateway.core.request.media import check_media, may_hold_media
from gateway.core.request.nesting import check_nesting
from gateway.core.routing.parameters import ParameterPolicy
from gateway.errors import BadRequest


class Cap(Struct, frozen=True):
    """A number may be at most ``policy.<setting>``; ``lowest`` bounds it below; ``zero`` says what a cap of 0 means."""

    setting: str
    lowest: int | None = None
    zero: str = ""


class Permit(Struct, frozen=True):
    """A field may only be there, and say something, where ``policy.<setting>``."""

    setting: str


OFF: Final = "off"
REFUSED: Final = "refused"

RULES: Final[Mapping[str, Cap | Permit]] = MappingProxyType(
    {
        "n": Cap("n"),
        "best_of": Cap("best_of"),
        "max_tokens": Cap("max_tokens", zero=OFF),
        "max_completion_tokens": Cap("max_tokens", zero=OFF),
        "max_output_tokens": Cap("max_tokens", zero=OFF),
        "min_tokens": Cap("max_tokens", zero=OFF),
        "logprobs": Cap("logprobs", lowest=0),
        "top_logprobs": Cap("logprobs", lowest=0),
        "prompt_logprobs": Cap("prompt_logprobs", lowest=0, zero=REFUSED),
        "priority": Permit("priority"),
        "background": Permit("background"),
        "chat_template": Permit("chat_template"),
        "mm_processor_kwargs": Permit("processor_kwargs"),
        "media_io_kwargs": Permit("processor_kwargs"),
        "kv_transfer_params": Permit("transfer_params"),
        "ec_transfer_params": Permit("transfer_params"),
        "prompt_embeds": Permit("embeds"),
    }
)
"""Field -> its rule."""

_SPECIAL: Final = frozenset({"echo", "vllm_xargs", "chat_template_kwargs"})
_RULED: Final = frozenset({*RULES, *_SPECIAL})
_SAYS_NOTHING: Final = frozenset({b"null", b"false", b"0", b'""', b"[]", b"{}"})
_NO: Final = frozenset({b"null", b"false"})


def check_parameters(data: bytes, fields: Mapping[str, Raw], policy: ParameterPolicy) -> None:
    """Refuse with BadRequest what ``policy`` does not allow; ``fields`` are the top level of the body ``data``."""
    try:
        check_nesting(data, fields, depth=policy.json_depth, values=policy.json_values)
        check_fields(fields, policy)
        if may_hold_media(data, remote=policy.remote_media, embeds=policy.embeds):
            check_media(fields, remote=policy.remote_media, embeds=policy.embeds)
    except msgspec.MsgspecError:  # a key that is no UTF-8: the parse of the top level did not look so deep
        raise BadRequest("the request body is not JSON all through") from None


def check_fields(fields: Mapping[str, Raw], policy: ParameterPolicy) -> None:
    """The part of it that is about single fields."""
    for name in _RULED & fields.keys():
        raw = bytes(fields[name])
        if raw in _NO:
            continue
        rule = RULES.get(name)
        if rule is None:
            _SPECIAL_CHECKS[name](raw, fields, policy)
        elif isinstance(rule, Cap):
            _check_cap(name, raw, rule, policy)
        elif raw not in _SAYS_NOTHING and not getattr(policy, rule.setting):
            raise BadRequest(f"{name} is not allowed here (parameters.{rule.setting})", param=name)


def _check_cap(name: str, raw: bytes, cap: Cap, policy: ParameterPolicy) -> None:  # noqa: PLR0917
    limit: int = getattr(policy, cap.setting)
    if limit == 0 and cap.zero == OFF:
        return
    if limit == 0 and cap.zero == REFUSED:
        raise BadRequest(f"{name} is not allowed here (parameters.{cap.setting})", param=name)
    if raw == b"true":
        return  # logprobs of chat; elsewhere it is 1
    value = _number(raw)
    if value is None:
        raise BadRequest(f"{name} is not a number; at most {limit} is allowed", param=name)
    if not value <= limit or (cap.lowest is not None and value < cap.lowest):
        allowed = f"at most {limit} is allowed" if cap.lowest is None else f"{cap.lowest} to {limit} is allowed"
        raise BadRequest(f"{name} is {value:g}; {allowed} (parameters.{cap.setting})", param=name)


def _number(raw: bytes) -> float | None:
    """A number, or text that the engine might take for one; None for anything else."""
    try:
        value = _NUMBER.decode(raw)
        number = float(value)
    except (msgspec.MsgspecError, ValueError, OverflowError):
        return None
    return None if math.isnan(number) else number


_NUMBER: Final = msgspec.json.Decoder(float | str)
_TEXT: Final = msgspec.json.Decoder(str)
_FIELDS: Final = msgspec.json.Decoder(dict[str, Raw])
_TRANSFER: Final = frozenset({"kv_transfer_params", "ec_transfer_params"})
_TEMPLATE: Final = frozenset({"chat_template", "tokenize"})
"""What vLLM 0.32 refuses among a template's variables, and older ones took for its own arguments (CVE-2025-62426)."""


def _check_echo(raw: bytes, fields: Mapping[str, Raw], policy: ParameterPolicy) -> None:  # noqa: ARG001
    """With log probabilities, ``echo`` asks for those of the prompt."""
    asked = bytes(fields.get("logprobs", Raw(b"null")))
    if asked not in _NO and policy.prompt_logprobs == 0:
        raise BadRequest("echo with logprobs is not allowed here (parameters.prompt_logprobs)", param="echo")


def _check_xargs(raw: bytes, fields: Mapping[str, Raw], policy: ParameterPolicy) -> None:  # noqa: ARG001
    """Extensions get these as they are: what has a field of its own must not come in by this door."""
    if not policy.transfer_params and not _TRANSFER.isdisjoint(_keys_in(raw)):
        raise BadRequest(
            "vllm_xargs with transfer parameters is not allowed here (parameters.transfer_params)", param="vllm_xargs"
        )


def _check_template_kwargs(raw: bytes, fields: Mapping[str, Raw], policy: ParameterPolicy) -> None:  # noqa: ARG001
    """Variables for the engine's template, and not another one."""
    if not policy.chat_template and not _TEMPLATE.isdisjoint(_keys_in(raw)):
        raise BadRequest(
            "chat_template_kwargs with chat_template or tokenize is not allowed here (parameters.chat_template)",
            param="chat_template_kwargs",
        )


def _keys_in(raw: bytes) -> Mapping[str, Raw]:
    """The keys of an object, or of one that is written in a text, as in a form."""
    try:
        text = raw if not raw.startswith(b'"') else _TEXT.decode(raw).encode()
        return _FIELDS.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return {}  # the engine's to refuse


_SPECIAL_CHECKS: Final = MappingProxyType(
    {"echo": _check_echo, "vllm_xargs": _check_xargs, "chat_template_kwargs": _check_template_kwargs}
)
