"""What a request of the Responses API asks for, checked in vLLM's order with vLLM's words.

Pure.  The roles and kinds of input items and the shape of ``tool_choice`` are not checked; there is no store, so what
needs one is refused as by a server that was started without it.  Unknown fields pass.
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
from gateway.simulator.responses_shapes import Echo, echoed_reasoning, echoed_text, echoed_tool
from gateway.simulator.shapes import Form

_LOGPROBS: Final = "message.output_text.logprobs"
_MOST_LOGPROBS: Final = 20
_INCLUDES: Final = (
    "code_interpreter_call.outputs", "computer_call_output.output.image_url", "file_search_call.results",
    "message.input_image.image_url", _LOGPROBS, "reasoning.encrypted_content",
)  # fmt: skip
_NO_STORE: Final = (
    "This vLLM engine does not support `store=True` and therefore does not support the background mode. To enable "
    "these features, set the environment variable `VLLM_ENABLE_RESPONSES_API_STORE=1` when launching the vLLM server."
)
_NO_TOOL: Final = "Tool choice 'function' not found in 'tools' parameter."


def read_responses(body: bytes, content_type: bytes, *, limits: Limits) -> Asked:
    """Return what a responses request asks for; raises ``Refused``."""
    reader = Reader(object_of(body, content_type))
    fields = reader.fields
    choice = _checked_choice(fields)
    _check_unsupported(fields)
    includes = _includes(reader)
    if reader.required("input"):
        reader.text_or_list("input")
    max_tokens = reader.integer("max_output_tokens")
    reader.mapping("metadata")
    reader.mapping("reasoning")
    is_hidden = "include_reasoning" in fields and not reader.boolean("include_reasoning")
    is_stream = reader.boolean("stream")
    temperature, top_p = reader.number("temperature"), reader.number("top_p")
    top_logprobs = reader.integer("top_logprobs")
    seed = reader.integer("seed")
    ignores_eos = reader.boolean("ignore_eos")
    reader.raise_faults()
    check_model(fields, limits)
    _check_store(fields)
    prompt, prompt_tokens = _prompt(fields, limits)
    room = room_for(max_tokens, prompt_tokens, limits=limits)
    check_amounts(fields, n=None, max_tokens=max_tokens, limits=limits, name="max_output_tokens")
    stop = fields.get("stop") or ()
    return Asked(
        form=Form.RESPONSES,
        prompt=prompt,
        prompt_tokens=prompt_tokens,
        max_tokens=room,
        ignore_eos=ignores_eos,
        seed=seed,
        stream=is_stream,
        include_reasoning=not is_hidden,
        thinks=_thinks(fields),
        logprobs=_logprobs(top_logprobs) if _LOGPROBS in includes else None,
        tool=_tool(fields, choice),
        stop=(stop,) if isinstance(stop, str) else tuple(str(one) for one in stop),
        echo=_echo(fields, choice, temperature=temperature, top_p=top_p),
        model=adapter_of(fields, limits),
    )


def _checked_choice(fields: dict[str, Any]) -> Any:
    """Return the tool choice as vLLM takes it, or refuse one that needs a tool that is not there."""
    choice, tools = fields.get("tool_choice", "auto"), fields.get("tools") or []
    is_named = isinstance(choice, dict) and choice.get("type") in {"function", "custom"}
    names = [tool.get("name") for tool in tools if isinstance(tool, dict)]
    if is_named and choice.get("name") not in names:
        raise refusals.bad_request(_NO_TOOL, param="tool_choice")
    if not tools and choice == "required":
        words = "Tool choice 'required' must be specified with 'tools' parameter."
        raise refusals.bad_request(words, param="tool_choice")
    if not tools and choice in ("auto", "none"):
        fields["tool_choice"] = "none"  # as vLLM does, whose faults count the fields after it
        return "none"
    return {"name": choice["name"], "type": choice["type"]} if is_named else choice


def _check_unsupported(fields: dict[str, Any]) -> None:
    if fields.get("prompt") is not None:
        raise refusals.bad_request("prompt template is not supported", param="prompt")
    if fields.get("background") and not fields.get("store", True):
        raise refusals.bad_request("background can only be used when `store` is true", param="background")


def _check_store(fields: dict[str, Any]) -> None:
    if fields.get("background"):
        raise refusals.api_error(400, "invalid_request_error", message=_NO_STORE, param="background")
    previous = fields.get("previous_response_id")
    if previous is not None:
        raise refusals.no_response(str(previous))


def _includes(reader: Reader) -> list[Any]:
    found = reader.elements("include")
    for index, one in enumerate(found):
        if one not in _INCLUDES:
            Reader({str(index): one}, place="body.include", faults=reader.faults).literal(str(index), _INCLUDES)
    return found


def _logprobs(top: int | None) -> int:
    top = top or 0
    if top > _MOST_LOGPROBS:
        words = f"Requested sample logprobs of {top}, which is greater than max allowed: {_MOST_LOGPROBS}"
        raise refusals.bad_request(words, param="logprobs", value=top)
    return top


def _thinks(fields: dict[str, Any]) -> bool:
    template = fields.get("chat_template_kwargs") or {}
    if "enable_thinking" in template:
        return template["enable_thinking"] is not False
    return (fields.get("reasoning") or {}).get("effort") != "none"


def _tool(fields: dict[str, Any], choice: Any) -> str:
    """Return the name of the tool that is to be called, "" for none."""
    if isinstance(choice, dict):
        return str(choice.get("name") or "")
    tools = [tool for tool in fields.get("tools") or [] if isinstance(tool, dict) and tool.get("type") == "function"]
    return "" if not tools or choice == "none" else str(tools[0].get("name", ""))


def _echo(fields: dict[str, Any], choice: Any, *, temperature: float | None, top_p: float | None) -> Echo:
    """Return what the response repeats; without randomness vLLM takes the whole of the vocabulary."""
    tools = [echoed_tool(tool) for tool in fields.get("tools") or []]
    reasoning, text = fields.get("reasoning"), fields.get("text")
    has_text = isinstance(text, dict) and not tools  # with tools their grammar takes its place
    return Echo(
        instructions=fields.get("instructions"),
        metadata=fields.get("metadata"),
        parallel_tool_calls=fields.get("parallel_tool_calls") is not False,
        temperature=1.0 if temperature is None else temperature,
        tool_choice=choice,
        tools=tools,
        top_p=1.0 if top_p is None or temperature == 0 else top_p,
        max_tool_calls=fields.get("max_tool_calls"),
        reasoning=echoed_reasoning(reasoning) if isinstance(reasoning, dict) else None,
        service_tier=fields.get("service_tier") or "auto",
        text=echoed_text(text) if has_text and isinstance(text, dict) else None,
        truncation=fields.get("truncation") or "disabled",
        user=fields.get("user"),
        presence_penalty=float(fields.get("presence_penalty") or 0.0),
        frequency_penalty=float(fields.get("frequency_penalty") or 0.0),
        request_id=str(fields.get("request_id") or ""),
    )


def _prompt(fields: dict[str, Any], limits: Limits) -> tuple[str, int]:
    """Return the text that the model gets and about how many tokens it is."""
    given = fields["input"]
    items = [given] if isinstance(given, str) else given
    texts = [str(fields["instructions"])] if fields.get("instructions") else []
    texts += [_text(item, limits.model) for item in items]
    if not texts:
        raise refusals.empty_conversation()
    prompt = "\n".join(texts)
    tools = fields.get("tools") or []
    return prompt, estimate_tokens(prompt) + TEMPLATE_TOKENS * len(texts) + TOOL_TOKENS * len(tools)


def _text(item: Any, model: str) -> str:
    """Return the text of an input item, or of a part of one."""
    if not isinstance(item, dict):
        return str(item)
    if item.get("type") == "input_image":
        raise refusals.not_multimodal(model)
    content = item.get("content")
    if isinstance(content, list):
        return " ".join(_text(part, model) for part in content)
    return str(content or item.get("text") or item.get("output") or item.get("arguments") or "")
