"""What a request of the Messages API asks for, checked in vLLM's order with vLLM's words.

Pure.  Faults of the body's shape are told in the plain error object, those of the serving layer in the API's own form
(``Refused.as_message``); unknown fields pass.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.simulator import refusals
from gateway.simulator.asked import (
    TEMPLATE_TOKENS,
    TOOL_TOKENS,
    Asked,
    Limits,
    adapter_of,
    check_amounts,
    check_model,
    estimate_tokens,
    object_of,
    room_for,
)
from gateway.simulator.fields import Reader
from gateway.simulator.shapes import Form, quote

_ROLES: Final = ("user", "assistant", "system")
_LEAST_BUDGET: Final = 1024


def read_messages(body: bytes, content_type: bytes, *, limits: Limits) -> Asked:
    """Return what a messages request asks for; raises ``Refused``."""
    reader = Reader(object_of(body, content_type))
    _read_conversation(reader)
    max_tokens = reader.integer("max_tokens") if reader.required("max_tokens") else None
    if max_tokens is not None and max_tokens < 1:
        reader.value_error("max_tokens", words="max_tokens must be positive", given=reader.fields["max_tokens"])
    budget = _budget(reader)
    stops = reader.elements("stop_sequences")
    is_stream = reader.boolean("stream")
    reader.number("temperature")
    tool = _read_tools(reader)
    if not reader.faults and budget is not None and max_tokens is not None and budget >= max_tokens:
        words = "thinking.budget_tokens must be less than max_tokens"
        reader.value_error("", words=words, given=reader.fields)
    reader.raise_faults()
    check_model(reader.fields, limits)
    check_amounts(reader.fields, n=None, max_tokens=max_tokens, limits=limits, name="max_completion_tokens")
    prompt, prompt_tokens = _prompt(reader.fields, limits)
    return Asked(
        form=Form.MESSAGES,
        prompt=prompt,
        prompt_tokens=prompt_tokens,
        max_tokens=room_for(max_tokens, prompt_tokens, limits=limits),
        stream=is_stream,
        thinks=_thinks(reader.fields),
        tool=tool,
        stop=tuple(str(stop) for stop in stops),
        model=adapter_of(reader.fields, limits),
    )


def count_page(body: bytes, content_type: bytes, *, limits: Limits) -> bytes:
    """Return the body of ``POST /v1/messages/count_tokens``; raises ``Refused``."""
    reader = Reader(object_of(body, content_type))
    _read_conversation(reader)
    _budget(reader)
    _read_tools(reader)
    reader.raise_faults()
    check_model(reader.fields, limits)
    _, count = _prompt(reader.fields, limits)
    room_for(None, count, limits=limits)
    return quote({"input_tokens": count, "context_management": {"original_input_tokens": count}})


def _read_conversation(reader: Reader) -> None:
    if reader.required("model"):
        model = reader.fields["model"]
        if not isinstance(model, str):
            reader.fault("string_type", "model", message="Input should be a valid string", given=model)
        elif not model:
            reader.value_error("model", words="Model is required", given=model)
    if not reader.required("messages"):
        return
    for message in reader.objects("messages"):
        if message.required("role"):
            message.literal("role", _ROLES)
        if message.required("content"):
            message.text_or_list("content")


def _budget(reader: Reader) -> int | None:
    """Return the budget of enabled thinking, None where there is none."""
    thinking = reader.mapping("thinking") or {}
    if thinking.get("type") != "enabled":
        return None
    inner = Reader(thinking, place="body.thinking.enabled", faults=reader.faults)
    budget = inner.integer("budget_tokens") if inner.required("budget_tokens") else None
    if budget is not None and budget < _LEAST_BUDGET:
        words = f"Input should be greater than or equal to {_LEAST_BUDGET}"
        inner.fault(
            "greater_than_equal", "budget_tokens", message=words, given=budget, context={"ge": _LEAST_BUDGET}
        )  # fmt: skip
    return budget


def _read_tools(reader: Reader) -> str:
    """Return the name of the tool that is to be called, "" for none."""
    choice = reader.mapping("tool_choice") or {}
    if choice.get("type") == "tool" and not choice.get("name"):
        words = "tool_choice.name is required when type is 'tool'"
        reader.value_error("tool_choice", words=words, given=choice)
    names = []
    for tool in reader.objects("tools"):
        tool.required("input_schema")
        if tool.required("name"):
            names.append(str(tool.fields["name"]))
    if not names or choice.get("type") == "none":
        return ""
    return str(choice["name"]) if choice.get("type") == "tool" and choice.get("name") else names[0]


def _thinks(fields: dict[str, Any]) -> bool:
    thinking, template = fields.get("thinking") or {}, fields.get("chat_template_kwargs") or {}
    return thinking.get("type") != "disabled" and template.get("enable_thinking") is not False


def _prompt(fields: dict[str, Any], limits: Limits) -> tuple[str, int]:
    """Return the text that the model gets and about how many tokens it is."""
    messages = fields["messages"]
    system = _text(fields.get("system") or "", limits.model)
    if not messages and not system:
        raise refusals.empty_conversation()
    texts = [system] if system else []
    texts += [_text(message["content"], limits.model) for message in messages]
    prompt = "\n".join(texts)
    tools = fields.get("tools") or []
    return prompt, estimate_tokens(prompt) + TEMPLATE_TOKENS * len(texts) + TOOL_TOKENS * len(tools)


def _text(content: Any, model: str) -> str:
    if not isinstance(content, list):
        return str(content)
    texts = []
    for block in content:
        given = block if isinstance(block, dict) else {}
        if given.get("type") == "image":
            raise refusals.not_multimodal(model)
        inner = given.get("content")
        texts.append(str(given.get("text") or given.get("thinking") or given.get("input") or ""))
        texts.append(_text(inner, model) if inner else "")
    return " ".join(text for text in texts if text)
