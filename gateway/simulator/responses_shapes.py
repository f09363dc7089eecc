"""The layout of the Responses API: the response object, its items and the fields of its events.

Pure: values in, plain dictionaries in the recorded order of keys out.  What happens when is ``responses.py``'s
business; what of a request is repeated in every response is an :class:`Echo`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec import Raw

from gateway.simulator.shapes import Usage, framed, quote

Fields = dict[str, Any]
NUMBER: Final = "sequence_number"

# What a function tool's description has beside what the client gave, in vLLM's order.
_TOOL_KEYS: Final = (
    "name", "parameters", "strict", "type", "allowed_callers", "async", "defer_loading", "description", "output_schema",
)  # fmt: skip
_REASONING_KEYS: Final = ("context", "effort", "generate_summary", "mode", "summary")


@dataclass(frozen=True, slots=True)
class Echo:
    """What a response repeats of its request, defaults filled in."""

    instructions: str | None = None
    metadata: Mapping[str, Any] | None = None
    parallel_tool_calls: bool = True
    temperature: float = 1.0
    tool_choice: Any = "none"
    tools: Sequence[Any] = ()
    top_p: float = 1.0
    max_tool_calls: int | None = None
    reasoning: Mapping[str, Any] | None = None
    service_tier: str = "auto"
    text: Mapping[str, Any] | None = None
    truncation: str = "disabled"
    user: str | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    request_id: str = ""  # the client's own id for the response, "" for none


def echoed_tool(tool: Any) -> Any:
    """Return a tool as a response repeats it; one that is no function is repeated as given."""
    if not isinstance(tool, dict) or tool.get("type") != "function":
        return tool
    return {key: tool.get(key) for key in _TOOL_KEYS}


def echoed_reasoning(reasoning: Mapping[str, Any]) -> Fields:
    """Return the reasoning settings as a response repeats them."""
    return {key: reasoning.get(key) for key in _REASONING_KEYS}


def echoed_text(text: Mapping[str, Any]) -> Fields:
    """Return the settings of the text as a response repeats them."""
    form = text.get("format")
    if isinstance(form, dict) and form.get("type") == "json_schema":
        form = {key: form.get(key) for key in ("name", "schema", "type", "description", "strict")}
    return {"format": form, "verbosity": text.get("verbosity")}


@dataclass(frozen=True, slots=True)
class Standing:
    """How a response stands; ``metrics`` is the JSON of the per-request metrics, empty for none."""

    status: str
    output: Sequence[Fields] = ()
    usage: Usage | None = None
    metrics: bytes = b""


def response_object(
    echo: Echo, standing: Standing, *, full_id: str, created: int, model: str, max_tokens: int, top_logprobs: int | None
) -> Fields:
    """Return the response object; ``max_tokens`` is what the context leaves, ``top_logprobs`` None where not asked."""
    is_cut = standing.status == "incomplete"
    metrics = {"metrics": Raw(standing.metrics)} if standing.metrics else {}
    return {
        "id": full_id,
        "created_at": created,
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "instructions": echo.instructions,
        "metadata": echo.metadata,
        "model": model,
        "object": "response",
        "output": list(standing.output),
        "parallel_tool_calls": echo.parallel_tool_calls,
        "temperature": echo.temperature,
        "tool_choice": echo.tool_choice,
        "tools": list(echo.tools),
        "top_p": echo.top_p,
        "background": False,
        "max_output_tokens": max_tokens,
        "max_tool_calls": echo.max_tool_calls,
        "previous_response_id": None,
        "prompt": None,
        "reasoning": echo.reasoning,
        "service_tier": echo.service_tier,
        "status": standing.status,
        "text": echo.text,
        "top_logprobs": top_logprobs,
        "truncation": echo.truncation,
        "usage": None if standing.usage is None else usage_object(standing.usage),
        "user": echo.user,
        **metrics,
        "presence_penalty": echo.presence_penalty,
        "frequency_penalty": echo.frequency_penalty,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "input_messages": None,
        "output_messages": None,
    }


def usage_object(usage: Usage) -> Fields:
    """Return the usage of a response."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": 0,
            "cache_write_tokens": 0,
            "input_tokens_per_turn": [],
            "cached_tokens_per_turn": [],
        },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens or 0,
            "tool_output_tokens": 0,
            "output_tokens_per_turn": [],
            "tool_output_tokens_per_turn": [],
        },
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def reasoning_item(item_id: str, text: str | None, *, status: str | None) -> Fields:
    """Return a reasoning item; ``text`` None before there is any."""
    content = None if text is None else [{"text": text, "type": "reasoning_text"}]
    return {
        "id": item_id,
        "summary": [],
        "type": "reasoning",
        "content": content,
        "encrypted_content": None,
        "status": status,
    }


def message_item(item_id: str, parts: Sequence[Fields], *, status: str) -> Fields:
    """Return a message item with these parts."""
    return {
        "id": item_id,
        "content": list(parts),
        "role": "assistant",
        "status": status,
        "type": "message",
        "phase": None,
    }


def text_part(text: str, *, logprobs: Sequence[Fields] | None) -> Fields:
    """Return the text part of a message."""
    return {"annotations": [], "text": text, "type": "output_text", "logprobs": logprobs}


def call_item(item_id: str, call: tuple[str, str, str], *, status: str) -> Fields:
    """Return the item of a function call; ``call`` is (id, name, arguments)."""
    call_id, name, arguments = call
    return {
        "arguments": arguments,
        "call_id": call_id,
        "name": name,
        "type": "function_call",
        "id": item_id,
        "async": None,
        "caller": None,
        "namespace": None,
        "status": status,
    }


def named_event(kind: str, fields: Fields) -> bytes:
    """Return an event with its name line, as one HTTP chunk."""
    return framed(b"event: %b\ndata: %b\n\n" % (kind.encode(), quote(fields)))
