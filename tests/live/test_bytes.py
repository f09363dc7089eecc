"""Byte for byte: what a client gets through the gateway is what the engine sends.

The same deterministic request goes to the engine and through the gateway. Ids, times and measured
durations differ between any two requests; everything else must not. How many tokens share an event is up to
the engine's timing: runs of events that differ in text only are compared put together, and a request gets a few
tries to be cut the same way twice where the engine cuts between two kinds of event.
"""

import re
from dataclasses import dataclass

import pytest

from tests.live.rig import wire
from tests.live.rig.engine import Engine
from tests.live.rig.gateway import Gateway

TRIES = 4
USAGE = {"stream_options": {"include_usage": True}}
TOOLS = {
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
            },
        }
    ]
}
WORDS = {"model": "tiny", "prompt": "1 2 3 4", "max_tokens": 24, "temperature": 0}
# Values that differ from one request to the next, wherever they stand.
OWN_VALUES = [
    (re.compile(rb'"id": ?"(chatcmpl|cmpl|chatcmpl-tool|call)[-_][^"]*"'), rb'"id":"\1"'),
    (re.compile(rb'"created": ?\d+'), b'"created":0'),
    (re.compile(rb'"metrics": ?\{[^}]*\}'), b'"metrics":{}'),
]
FINGERPRINT = re.compile(rb',"system_fingerprint": ?"[^"]*"')
# Headers that belong to one connection or one server, and those that the gateway documents as its own.
OWN_HEADERS = {"date", "server", "connection", "keep-alive", "transfer-encoding", "content-length", "vary"}


# Values that grow when the engine puts two tokens into one event, and those that then skip a step.
GROWING = re.compile(rb'"(reasoning|content|text|arguments)": ?"((?:[^"\\]|\\.)*)"|"(token_ids)": ?\[([^\]]*)\]')
CHOICE = re.compile(rb'"index": ?(\d+)')
RUNNING_USAGE = re.compile(rb'(?<!"choices":\[\]),"usage": ?\{[^}]*(?:\{[^}]*\}[^}]*)*\}')


@dataclass(frozen=True, slots=True)
class Answer:
    """What must be the same both ways.

    `shapes` are the events with their growing values taken out, one for each run of events of the same shape;
    `values` are those values, put together for each choice and field.
    """

    status: int
    content_type: str | None
    shapes: tuple[bytes, ...]
    values: dict[tuple[bytes, ...], bytes]


def same_for_all(body: bytes) -> bytes:
    for pattern, plain in OWN_VALUES:
        body = pattern.sub(plain, body)
    return body


def put_together(events: list[bytes]) -> tuple[list[bytes], dict[tuple[bytes, ...], bytes]]:
    """Shapes and values of a stream, however its tokens were dealt out to events."""
    shapes: list[bytes] = []
    values: dict[tuple[bytes, ...], bytes] = {}
    for event in events:
        index = CHOICE.search(event)
        choice = index.group(1) if index else b""
        for match in GROWING.finditer(event):
            key = (choice, match.group(1) or match.group(3))
            values[key] = values.get(key, b"") + b"," * bool(match.group(3)) + (match.group(2) or match.group(4) or b"")
        shape = GROWING.sub(lambda match: match.group(1) or match.group(3), RUNNING_USAGE.sub(b"", event))
        if not shapes or shapes[-1] != shape:
            shapes.append(shape)
    return shapes, values


def answer(port: int, path: str, body: dict) -> Answer:
    with wire.Call(port, path, body) as call:
        events = same_for_all(call.read()).split(b"\n\n")
        if body.get("stream") and "stream_options" not in body:
            # The one trace of usage that was asked for on the client's behalf: vLLM names its fingerprint in
            # the last event that it makes, and that is the usage event which the client does not get.
            events = [FINGERPRINT.sub(b"", event) for event in events]
        shapes, values = put_together(events)
        # Whose token comes first is chance where there are several choices.
        several = body.get("n") or isinstance(body.get("prompt"), list)
        return Answer(
            call.status, call.header("content-type"), tuple(sorted(set(shapes)) if several else shapes), values
        )


CHATS = {
    "plain": wire.chat(),
    "counting": wire.chat("count please"),
    "thinking_long": wire.chat("ponder please"),
    "many_bytes_a_character": wire.chat("emoji please"),
    "cut_while_thinking": wire.chat("ponder please", max_tokens=20),
    "no_thinking": wire.chat(chat_template_kwargs={"enable_thinking": False}),
    "thinking_hidden": wire.chat(include_reasoning=False),
    "stop_string": wire.chat("count please", stop=[" 7 "]),
    "tool": wire.chat("what about music", **TOOLS),
    "tool_required": wire.chat("what about music", tool_choice="required", max_tokens=200, **TOOLS),
    "two_choices": {**wire.chat(n=2, seed=3), "temperature": 1},
    "logprobs": wire.chat(logprobs=True, top_logprobs=2, max_tokens=16),
    "token_ids": wire.chat(return_token_ids=True),
    "unknown_field": wire.chat(surprise={"deep": [1, 2.5, None, "é"]}, max_tokens=8),
    "model_left_out": {key: value for key, value in wire.chat(max_tokens=8).items() if key != "model"},
}
STREAMS = {
    **{name: {**body, "stream": True} for name, body in CHATS.items()},
    **{f"{name}_with_usage": {**body, "stream": True, **USAGE} for name, body in CHATS.items()},
    "usage_everywhere": wire.chat(stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True}),
}
COMPLETIONS = {
    "whole": WORDS,
    "stream": {**WORDS, "stream": True},
    "stream_with_usage": {**WORDS, "stream": True, **USAGE},
    "stream_echo_logprobs": {**WORDS, "max_tokens": 6, "stream": True, "echo": True, "logprobs": 1, **USAGE},
    "stream_two_prompts": {**WORDS, "prompt": ["1 2 3", "7 8 9"], "max_tokens": 6, "stream": True},
}
REFUSED = {
    "negative_max_tokens": wire.chat(max_tokens=-1),
    "large_max_tokens": wire.chat(max_tokens=100_000),
    "wrong_type": wire.chat(max_tokens="many"),
    "messages_of_wrong_type": {"model": "tiny", "messages": "hello"},
    "no_messages": {"model": "tiny"},
    "long_prompt": wire.chat("count " * 3000),
    "large_max_tokens_stream": wire.chat(max_tokens=100_000, stream=True),
    "usage_without_stream": wire.chat(**USAGE),
}


def cases() -> list:
    named = [("chat", wire.CHAT, CHATS), ("chat_stream", wire.CHAT, STREAMS), ("refused", wire.CHAT, REFUSED)]
    named.append(("completions", wire.COMPLETIONS, COMPLETIONS))
    return [
        pytest.param(path, body, id=f"{group}-{name}") for group, path, bodies in named for name, body in bodies.items()
    ]


@pytest.mark.parametrize("path, body", cases())
def test_the_body_is_the_engines_own(gateway: Gateway, engine_a: Engine, path, body):
    answer(engine_a.port, path, body)  # the first of its kind may find nothing in the engine's prefix cache
    for _ in range(TRIES):
        straight, through = answer(engine_a.port, path, body), answer(gateway.port, path, body)
        if straight == through:
            return
    assert through == straight


def test_an_answer_has_the_engines_headers_and_only_documented_ones_of_the_gateway(gateway: Gateway, engine_a: Engine):
    for body in (wire.chat(max_tokens=4), wire.chat(max_tokens=4, stream=True)):
        with wire.Call(engine_a.port, wire.CHAT, body) as direct, wire.Call(gateway.port, wire.CHAT, body) as through:
            theirs = {name.lower() for name, _ in direct.response.getheaders()} - OWN_HEADERS
            ours = {name.lower() for name, _ in through.response.getheaders()} - OWN_HEADERS
            direct.read(), through.read()

        assert theirs - ours == set()
        assert {name for name in ours - theirs if not name.startswith("x-gateway-")} <= {
            "x-request-id",
            "server-timing",
        }


def test_a_stream_arrives_event_by_event_and_not_in_one_lump(gateway: Gateway, idle: Engine):
    with wire.Call(gateway.port, wire.CHAT, wire.chat("count please", stream=True)) as call:
        moments = [event.at_s for event in call.events()]

    assert len(moments) > 300
    assert len(set(moments)) > 30  # a busy machine lumps some together
