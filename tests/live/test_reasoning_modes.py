"""Each reasoning mode with real clients on a real vLLM, against what the same request says straight to the engine.

Deterministic (temperature 0), so what a client gets in a mode is compared with the engine's own text, character by
character.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from tests.live.rig import keys, npm
from tests.live.rig.engine import Engine
from tests.live.rig.gateway import Gateway
from tests.live.rig.ways import GatewayMaker

HELLO = [{"role": "user", "content": "hello there"}]
CHAT = {"model": "tiny", "messages": HELLO, "temperature": 0, "seed": 7}
RESPONSES = {"model": "tiny", "input": "hello there", "temperature": 0}
MESSAGES = {"model": "tiny", "messages": HELLO, "max_tokens": 300, "temperature": 0}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
# vLLM leaves special tokens out, and the tiny model's tags are some: without a parser they stay only when asked for.
TAGGED = CHAT | {"extra_body": {"skip_special_tokens": False}}
SIDE = "X-Gateway-Reasoning-Stream"
FIELDS = {
    "pass": {"reasoning"},
    "reasoning": {"reasoning"},
    "reasoning_content": {"reasoning_content"},
    "both": {"reasoning", "reasoning_content"},
    "events": {"reasoning"},
    "drop": set(),
    "side": set(),
    "tags": set(),
}
STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
MODES = pytest.mark.parametrize("mode", FIELDS)


@dataclass(slots=True)
class Said:
    """An answer put together: text by field, and what else must not suffer."""

    text: dict[str, str] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    finish: str | None = None
    tokens: tuple[int, int] | None = None

    @property
    def reasoning(self) -> str:
        return self.text["reasoning"]

    @property
    def content(self) -> str:
        return self.text["content"]

    def take(self, part: Any, finish: str | None, usage: Any) -> None:
        """Take a delta, or a message."""
        for name in ("reasoning", "reasoning_content", "content"):
            if piece := getattr(part, name, None):
                self.text[name] = self.text.get(name, "") + piece
        for call in part.tool_calls or []:
            if call.function.name:
                self.calls.append((call.function.name, ""))
            name, arguments = self.calls[-1]
            self.calls[-1] = (name, arguments + (call.function.arguments or ""))
        self.finish = finish or self.finish
        self.counted(usage)

    def counted(self, usage: Any) -> None:
        if usage is not None:
            self.tokens = (usage.prompt_tokens, usage.completion_tokens)


def wants(mode: str | None) -> dict[str, Any]:
    return {} if mode is None else {"extra_headers": {"X-Gateway-Reasoning": mode}}


def chat(client: openai.OpenAI, mode: str | None, *, stream: bool, **asked: Any) -> Said:
    said = Said()
    asked = {**CHAT, **asked, **wants(mode)}
    if stream:
        for chunk in client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
            for choice in chunk.choices:
                said.take(choice.delta, choice.finish_reason, None)
            said.counted(chunk.usage)
    else:
        answer = client.chat.completions.create(**asked)
        said.take(answer.choices[0].message, answer.choices[0].finish_reason, answer.usage)
    return said


def delivered(plain: Said, mode: str) -> dict[str, str]:
    """What a mode makes of the engine's text, by field."""
    content = plain.content
    if mode == "tags":
        content = f"<think>{plain.reasoning}</think>{content}"
    return {"content": content} | dict.fromkeys(FIELDS[mode], plain.reasoning)


@pytest.fixture(scope="module")
def keyed(start_gateway: GatewayMaker, engine_a: Engine, run_folder: Path) -> Gateway:
    """A gateway whose clients need keys, and which comments soon on silence."""
    comments = {"comments": {"first_s": 0.2, "every_s": 0.02}}
    return start_gateway("modes", [engine_a], runtime=keys.wanted(run_folder, "modes") | comments)


@pytest.fixture(scope="module")
def key(keyed: Gateway) -> str:
    return keys.make(keyed, "reader")


@pytest.fixture(scope="module")
def client(keyed: Gateway, key: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{keyed.url}/v1", api_key=key, max_retries=0, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def direct(engine_a: Engine) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{engine_a.url}/v1", api_key="unused", max_retries=0, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def messages(keyed: Gateway, key: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=keyed.url, api_key=key, max_retries=0, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def plain(direct: openai.OpenAI) -> Said:
    """What the engine says by itself, with both channels."""
    said = chat(direct, None, stream=False)
    assert said.reasoning
    assert said.content
    return said


# --- chat, openai-python ---


@STREAMS
@MODES
def test_chat_has_the_engine_s_text_in_the_fields_of_its_mode(client, plain: Said, mode: str, stream: bool):
    if mode == "events" and not stream:
        with pytest.raises(openai.BadRequestError) as caught:
            chat(client, mode, stream=stream)
        assert "events is not possible here for an answer in one piece" in caught.value.body["message"]
        return
    said = chat(client, mode, stream=stream)

    assert said.text == delivered(plain, mode)
    assert (said.finish, said.tokens) == ("stop", plain.tokens)


@MODES
def test_a_tool_call_comes_whole_in_every_mode(client, direct, mode: str):
    asked = {"messages": [{"role": "user", "content": "what about music"}], "tools": [WEATHER]}
    engine_s = chat(direct, None, stream=True, **asked)
    said = chat(client, mode, stream=True, **asked)

    assert said.calls == engine_s.calls
    assert [name for name, _ in said.calls] == ["get_weather"]
    assert said.text == delivered(engine_s, mode)
    assert (said.finish, said.tokens) == ("tool_calls", engine_s.tokens)


def test_an_unknown_mode_is_a_bad_request_that_names_the_modes(client):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, "loud", stream=True)

    assert caught.value.param == "X-Gateway-Reasoning"
    assert all(mode in caught.value.body["message"] for mode in FIELDS)


def test_events_are_named_by_what_is_in_them(client, plain: Said):
    with client.chat.completions.with_streaming_response.create(**CHAT, stream=True, **wants("events")) as response:
        lines = list(response.iter_lines())

    names = {"event: reasoning": "reasoning", "event: content": "content"}
    said = dict.fromkeys(names.values(), "")
    for before, line in pairwise(lines):
        if before in names:
            delta = ChatCompletionChunk.model_validate_json(line.removeprefix("data: ")).choices[0].delta
            said[names[before]] += getattr(delta, names[before])
    assert said == plain.text


# --- reasoning on a stream of its own ---


def beside(client: openai.OpenAI, path: str) -> str:
    """Read a side stream to its end, by the same SDK; its reasoning."""
    pieces = client.get(
        path.removeprefix("/v1"),
        cast_to=ChatCompletionChunk,
        stream=True,
        stream_cls=openai.Stream[ChatCompletionChunk],
    )
    return "".join(getattr(choice.delta, "reasoning", "") for chunk in pieces for choice in chunk.choices)


def test_a_second_connection_reads_the_reasoning_while_the_first_reads_the_content(client, plain: Said):
    raw = client.chat.completions.with_raw_response.create(**CHAT, stream=True, **wants("side"))
    with ThreadPoolExecutor(1) as second:
        reasoning = second.submit(beside, client, raw.headers[SIDE])
        said = Said()
        for chunk in raw.parse():
            said.take(chunk.choices[0].delta, chunk.choices[0].finish_reason, chunk.usage)

    assert reasoning.result() == plain.reasoning
    assert said.text == {"content": plain.content}


def test_it_can_be_read_after_an_answer_in_one_piece(client, plain: Said):
    raw = client.chat.completions.with_raw_response.create(**CHAT, **wants("side"))

    assert beside(client, raw.headers[SIDE]) == plain.reasoning


def test_another_key_does_not_find_it_and_without_a_key_nobody_looks(client, keyed: Gateway):
    path = client.chat.completions.with_raw_response.create(**CHAT, **wants("side")).headers[SIDE]

    with pytest.raises(openai.NotFoundError) as caught:
        beside(client.with_options(api_key=keys.make(keyed, "stranger")), path)
    assert caught.value.code == "not_found"
    with pytest.raises(openai.AuthenticationError):
        beside(client.with_options(api_key="pk-none"), path)


# --- Responses ---


def responses(client: openai.OpenAI, mode: str | None, *, stream: bool) -> tuple[Any, dict[str, str]]:
    """The final response, and what its stream's deltas were (of a whole answer: what it holds)."""
    asked = {**RESPONSES, **wants(mode)}
    if not stream:
        final = client.responses.create(**asked)
        texts = {item.type: item.content[0].text for item in final.output}
        return final, texts
    events = list(client.responses.create(**asked, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = {"response.reasoning_text.delta": "reasoning", "response.output_text.delta": "message"}
    texts = {}
    for event in events:
        if name := kinds.get(event.type):
            texts[name] = texts.get(name, "") + event.delta
    assert not [event for event in events if "reasoning" in event.type] or "reasoning" in texts
    return events[-1].response, texts


@STREAMS
@pytest.mark.parametrize("mode", ["pass", "drop", "side"])
def test_responses_have_the_engine_s_text_with_or_without_reasoning(client, direct, mode: str, stream: bool):
    engine_s, texts = responses(direct, None, stream=False)
    final, said = responses(client, mode, stream=stream)

    hidden = mode != "pass"
    assert said == ({"message": texts["message"]} if hidden else texts)
    assert [item.type for item in final.output] == (["message"] if hidden else ["reasoning", "message"])
    assert final.output_text == engine_s.output_text
    assert final.usage.output_tokens == engine_s.usage.output_tokens


def test_the_reasoning_of_responses_is_read_beside_them(client, direct):
    _, texts = responses(direct, None, stream=False)
    raw = client.responses.with_raw_response.create(**RESPONSES, stream=True, **wants("side"))
    with ThreadPoolExecutor(1) as second:
        reasoning = second.submit(beside, client, raw.headers[SIDE])
        final = list(raw.parse())[-1].response

    assert reasoning.result() == texts["reasoning"]
    assert final.output_text == texts["message"]


def test_the_helper_puts_responses_without_reasoning_together(client, direct):
    _, texts = responses(direct, None, stream=False)
    with client.responses.stream(**RESPONSES, **wants("drop")) as stream:
        final = stream.get_final_response()

    assert [item.type for item in final.output] == ["message"]
    assert final.output_text == texts["message"]


@STREAMS
@pytest.mark.parametrize("mode", ["reasoning", "reasoning_content", "both", "events", "tags"])
def test_a_mode_of_chat_is_a_bad_request_elsewhere_that_says_what_is_possible(
    client, messages, mode: str, stream: bool
):
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(**RESPONSES, stream=stream, **wants(mode))
    assert "possible: pass, drop or side" in caught.value.body["message"]
    with pytest.raises(anthropic.BadRequestError) as refused:
        create(messages, mode, stream=stream)
    assert "possible: pass, drop or side" in refused.value.body["error"]["message"]


# --- Messages, anthropic-python ---


def create(client: anthropic.Anthropic, mode: str | None, *, stream: bool, **asked: Any) -> Any:
    # The SDK's types for this model's parameters know no temperature: it goes in the body.
    return client.messages.create(
        **{k: v for k, v in {**MESSAGES, **asked}.items() if k != "temperature"},
        stream=stream,
        extra_body={"temperature": 0},
        **wants(mode),
    )


def blocks(client: anthropic.Anthropic, mode: str | None, *, stream: bool, **asked: Any) -> tuple[dict[str, str], int]:
    """Thinking and text, and the output tokens."""
    answer = create(client, mode, stream=stream, **asked)
    if not stream:
        return {block.type: getattr(block, block.type) for block in answer.content}, answer.usage.output_tokens
    texts: dict[int, tuple[str, str]] = {}
    tokens = 0
    for event in answer:
        if event.type == "content_block_start":
            texts[event.index] = (event.content_block.type, "")
        elif event.type == "content_block_delta" and event.delta.type in ("thinking_delta", "text_delta"):
            kind, text = texts[event.index]
            texts[event.index] = (kind, text + getattr(event.delta, kind))
        elif event.type == "message_delta":
            tokens = event.usage.output_tokens
    assert list(texts) == list(range(len(texts)))
    return dict(texts.values()), tokens


@pytest.fixture(scope="module")
def engine_s_blocks(engine_a: Engine) -> tuple[dict[str, str], int]:
    with anthropic.Anthropic(base_url=engine_a.url, api_key="unused", max_retries=0) as client:
        said = blocks(client, None, stream=False)
    assert list(said[0]) == ["thinking", "text"]
    return said


@STREAMS
@pytest.mark.parametrize("mode", ["pass", "drop", "side"])
def test_messages_have_the_engine_s_text_with_or_without_thinking(messages, engine_s_blocks, mode: str, stream: bool):
    texts, tokens = engine_s_blocks

    assert blocks(messages, mode, stream=stream) == (texts if mode == "pass" else {"text": texts["text"]}, tokens)


def test_the_thinking_of_messages_is_read_beside_them(messages, client, engine_s_blocks):
    raw = messages.messages.with_raw_response.create(
        model="tiny", max_tokens=300, messages=HELLO, stream=True, extra_body={"temperature": 0}, **wants("side")
    )
    with ThreadPoolExecutor(1) as second:
        thinking = second.submit(beside, client, raw.headers[SIDE])
        list(raw.parse())

    assert thinking.result() == engine_s_blocks[0]["thinking"]


def test_the_helper_puts_a_message_without_thinking_together(messages, engine_s_blocks):
    with messages.messages.stream(
        model="tiny", max_tokens=300, messages=HELLO, extra_body={"temperature": 0}, **wants("drop")
    ) as stream:
        final = stream.get_final_message()

    assert [(block.type, block.text) for block in final.content] == [("text", engine_s_blocks[0]["text"])]
    assert final.stop_reason == "end_turn"


# --- the npm client ---


@MODES
def test_the_npm_client_reads_every_mode(keyed: Gateway, key: str, plain: Said, mode: str):
    seen = npm.play(f"{keyed.url}/v1", "reasoning", mode, key=key)

    wanted = delivered(plain, mode)
    assert seen["reasoning"] == wanted.get("reasoning", "")
    assert seen["reasoningContent"] == wanted.get("reasoning_content", "")
    assert seen["content"] == seen["helper"] == wanted["content"]
    assert seen["finish"] == "stop"


# --- silence: while thinking is hidden, comments come, and no client minds ---


def test_comments_in_the_silence_of_hidden_reasoning_do_not_disturb_openai_python(client, direct):
    asked = CHAT | {"messages": [{"role": "user", "content": "ponder please"}]}
    with client.chat.completions.with_streaming_response.create(**asked, stream=True, **wants("drop")) as response:
        lines = list(response.iter_lines())

    assert [line for line in lines if line.startswith(":")]
    engine_s = chat(direct, None, stream=False, **asked)
    said = chat(client, "drop", stream=True, **asked)
    assert (said.text, said.finish) == ({"content": engine_s.content}, "stop")


def test_pings_in_the_silence_of_hidden_thinking_do_not_disturb_anthropic_python(messages, engine_a: Engine):
    ponder = [{"role": "user", "content": "ponder please"}]
    with messages.messages.with_streaming_response.create(
        model="tiny", max_tokens=600, messages=ponder, stream=True, extra_body={"temperature": 0}, **wants("drop")
    ) as response:
        lines = list(response.iter_lines())

    assert "event: ping" in lines
    with anthropic.Anthropic(base_url=engine_a.url, api_key="unused", max_retries=0) as straight:
        texts, _ = blocks(straight, None, stream=False, messages=ponder, max_tokens=600)
    said, _ = blocks(messages, "drop", stream=True, messages=ponder, max_tokens=600)
    assert said == {"text": texts["text"]}


# --- an engine without a reasoning parser ---


@pytest.fixture(scope="module")
def tagging(run_folder: Path) -> Iterator[Engine]:
    """An engine that leaves the tags in the text."""
    engine = Engine("tagging", run_folder, "--enable-per-request-metrics", "--reasoning-parser", "")
    engine.start()
    try:
        engine.wait()
        yield engine
    finally:
        engine.end()


@pytest.fixture(scope="module")
def tagged(tagging: Engine) -> str:
    """What such an engine says by itself: one text."""
    with openai.OpenAI(base_url=f"{tagging.url}/v1", api_key="unused", max_retries=0, timeout=60) as client:
        said = chat(client, None, stream=False, **TAGGED)
    assert list(said.text) == ["content"]
    return said.content


@pytest.fixture(scope="module")
def splitting(start_gateway: GatewayMaker, tagging: Engine) -> Iterator[openai.OpenAI]:
    """A client of a gateway that splits such texts."""
    pool = {"name": "tiny", "backends": [{"name": "tagging", "url": tagging.url}], "reasoning": {"think_tags": True}}
    gateway = start_gateway("splitting", [tagging], runtime={"pools": [pool]})
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="unused", max_retries=0, timeout=60) as client:
        yield client


@pytest.mark.parametrize(
    "mode, stream",
    [(mode, stream) for mode in (None, *FIELDS) for stream in (False, True) if stream or mode != "events"],
)
def test_tags_in_the_text_are_split_and_delivered_in_every_mode(splitting, tagged: str, mode: str | None, stream: bool):
    said = chat(splitting, mode, stream=stream, **TAGGED)

    before, opening, rest = tagged.partition("<think>")
    reasoning, closing, content = rest.partition("</think>")
    assert (before, opening, closing) == ("", "<think>", "</think>")
    if mode in ("pass", "tags"):
        assert said.text == {"content": tagged}
    else:
        assert said.text == delivered(Said({"reasoning": reasoning, "content": content}), mode or "reasoning")


@STREAMS
def test_what_is_split_is_what_the_engine_s_own_parser_would_say(splitting, direct, stream: bool):
    parsed = chat(direct, None, stream=False, **TAGGED)

    assert chat(splitting, None, stream=stream, **TAGGED).text == parsed.text


def test_split_reasoning_can_be_read_beside_the_content(splitting, tagged: str):
    raw = splitting.chat.completions.with_raw_response.create(**TAGGED, stream=True, **wants("side"))
    with ThreadPoolExecutor(1) as second:
        reasoning = second.submit(beside, splitting, raw.headers[SIDE])
        content = "".join(chunk.choices[0].delta.content or "" for chunk in raw.parse())

    assert f"<think>{reasoning.result()}</think>{content}" == tagged
