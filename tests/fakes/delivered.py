"""What a client of any SDK makes of an answer: the text of each channel, tool calls, ends, usage; read plainly.

The reference of the delivery tests: json, dictionaries and no code of the gateway's.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

THINK = re.compile(r"<think>(.*?)</think>", re.DOTALL)


def payloads(body: bytes) -> list[tuple[str, Any]]:
    """(event name, decoded data) of each event with data that is JSON; "[DONE]" as text."""
    found = []
    for block in re.split(rb"\r\n\r\n|\n\n|\r\r", body):
        lines = re.split(rb"\r\n|\n|\r", block)
        name = b"".join(line[7:] for line in lines if line.startswith(b"event: ")).decode()
        data = b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:"))
        if data:
            found.append((name, "[DONE]" if data == b"[DONE]" else json.loads(data)))
    return found


@dataclass
class ReadAnswer:
    """One answer, by choice (or 0)."""

    reasoning: dict[int, str] = field(default_factory=lambda: defaultdict(str))
    content: dict[int, str] = field(default_factory=lambda: defaultdict(str))
    tools: dict[int, list[Any]] = field(default_factory=lambda: defaultdict(list))
    ends: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    roles: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    usages: list[Any] = field(default_factory=list)
    errors: list[Any] = field(default_factory=list)
    done: int = 0

    def engine_text(self, index: int = 0) -> tuple[str, str]:
        """Reasoning and content of one choice."""
        return self.reasoning[index], self.content[index]


def read_chat(body: bytes, *, names: tuple[str, ...] = ("reasoning", "reasoning_content")) -> ReadAnswer:
    """A chat or completions stream; reasoning under any of ``names``, the first that is there."""
    seen = ReadAnswer()
    for _, value in payloads(body):
        if value == "[DONE]":
            seen.done += 1
            continue
        if "error" in value:
            seen.errors.append(value["error"])
        if value.get("usage"):
            seen.usages.append(value["usage"])
        for choice in value.get("choices", ()):
            _take_choice(seen, choice, choice.get("delta") or {}, names)
    return seen


def read_chat_body(body: bytes, *, names: tuple[str, ...] = ("reasoning", "reasoning_content")) -> ReadAnswer:
    """A chat or completions answer in one piece."""
    seen = ReadAnswer()
    value = json.loads(body)
    seen.usages.append(value.get("usage"))
    for choice in value["choices"]:
        _take_choice(seen, choice, choice.get("message") or {}, names)
    return seen


def _take_choice(seen: ReadAnswer, choice: Any, delta: Any, names: tuple[str, ...]) -> None:
    index = choice["index"]
    seen.reasoning[index] += next((delta[name] for name in names if delta.get(name)), "")
    seen.content[index] += delta.get("content") or choice.get("text") or ""
    seen.tools[index] += delta.get("tool_calls") or []
    if delta.get("role"):
        seen.roles[index].append(delta["role"])
    if choice.get("finish_reason"):
        seen.ends[index].append(choice["finish_reason"])


def inlined(text: str) -> tuple[str, str]:
    """Reasoning and content of text with plain think tags in it; the last may be open."""
    if text.count("<think>") > text.count("</think>"):
        text += "</think>"
    return "".join(THINK.findall(text)), THINK.sub("", text)


def read_typed(body: bytes) -> ReadAnswer:
    """A stream of Responses or Messages as its one choice, by the types of its events."""
    seen = ReadAnswer()
    for _, value in payloads(body):
        kind, delta = value.get("type"), value.get("delta")
        if kind in {"response.reasoning_text.delta", "response.reasoning_summary_text.delta"}:
            seen.reasoning[0] += delta
        elif kind == "response.output_text.delta":
            seen.content[0] += delta
        elif kind == "response.function_call_arguments.delta":
            seen.tools[0].append(delta)
        elif kind in {"response.completed", "response.incomplete", "response.failed"}:
            seen.ends[0].append(value["response"]["status"])
            seen.usages.append(value["response"]["usage"])
        elif kind == "content_block_delta":
            seen.reasoning[0] += delta.get("thinking", "")
            seen.content[0] += delta.get("text", "")
            seen.tools[0] += [delta["partial_json"]] if "partial_json" in delta else []
        elif kind == "message_delta":
            seen.ends[0].append(delta["stop_reason"])
            seen.usages.append(value["usage"])
        elif kind == "error" or "error" in value:
            seen.errors.append(value)
        seen.done += kind == "message_stop"
    return seen


@dataclass
class Taken:
    """What `side` and `drop` take out, decoded, by choice."""

    texts: dict[int, str] = field(default_factory=lambda: defaultdict(str))

    def __call__(self, index: int, inside: bytes) -> None:
        self.texts[index] += json.loads(b'"' + inside + b'"')
