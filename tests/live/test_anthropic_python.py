"""anthropic-python, straight to vLLM and through the gateway: a user must not be able to tell the two apart."""

from collections.abc import Iterator

import anthropic
import pytest

from tests.live.rig import wire
from tests.live.rig.engine import Engine
from tests.live.rig.gateway import Gateway
from tests.live.rig.leaving import freed_early
from tests.live.rig.ways import Served

HELLO = [{"role": "user", "content": "hello there"}]
WEATHER = {
    "name": "get_weather",
    "description": "weather of a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
ASK = {"model": "tiny", "max_tokens": 300, "messages": HELLO, "temperature": 0}


@pytest.fixture
def client(served: Served) -> Iterator[anthropic.Anthropic]:
    base = f"http://127.0.0.1:{served.port}"
    with anthropic.Anthropic(base_url=base, api_key="unused", max_retries=0, timeout=60) as client:
        yield client


def ask(client: anthropic.Anthropic, **more):
    asked = {**ASK, **more}
    temperature = asked.pop("temperature")  # newer releases of the client have no such argument
    return client.messages.create(**asked, extra_body={"temperature": temperature})


def test_a_message_has_thinking_text_and_usage(client):
    message = ask(client)

    assert [block.type for block in message.content] == ["thinking", "text"]
    assert all(getattr(block, block.type) for block in message.content)
    assert message.stop_reason == "end_turn"
    assert message.usage.input_tokens > 0
    assert message.usage.output_tokens > 0


def test_a_stream_says_the_same_as_a_message_in_one_piece(client):
    whole = ask(client)
    events = list(ask(client, stream=True))

    assert (events[0].type, events[-1].type) == ("message_start", "message_stop")
    deltas = [event.delta for event in events if event.type == "content_block_delta"]
    assert "".join(d.thinking for d in deltas if d.type == "thinking_delta") == whole.content[0].thinking
    assert "".join(d.text for d in deltas if d.type == "text_delta") == whole.content[1].text
    (last,) = [event for event in events if event.type == "message_delta"]
    assert (last.delta.stop_reason, last.usage.output_tokens) == ("end_turn", whole.usage.output_tokens)


def test_the_streaming_helper_reads_it_too(client):
    with client.messages.stream(**{k: v for k, v in ASK.items() if k != "temperature"}) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()

    assert text
    assert final.content[-1].text == text
    assert final.stop_reason == "end_turn"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_tool_is_called_with_whole_arguments(client, stream):
    asked = {"messages": [{"role": "user", "content": "what about music"}], "tools": [WEATHER]}
    if stream:
        events = list(ask(client, **asked, stream=True))
        pieces = [
            e.delta.partial_json
            for e in events
            if e.type == "content_block_delta" and e.delta.type == "input_json_delta"
        ]
        names = [
            e.content_block.name
            for e in events
            if e.type == "content_block_start" and e.content_block.type == "tool_use"
        ]
        assert names == ["get_weather"]
        assert '"city"' in "".join(pieces)
        return
    message = ask(client, **asked)
    (call,) = [block for block in message.content if block.type == "tool_use"]
    assert call.name == "get_weather"
    assert "city" in call.input
    assert message.stop_reason == "tool_use"


def test_a_message_that_is_cut_short_says_so(client):
    message = ask(client, max_tokens=8)

    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 8)


def test_tokens_are_counted(client):
    counted = client.messages.count_tokens(model="tiny", messages=HELLO)

    assert counted.input_tokens == ask(client, max_tokens=1).usage.input_tokens


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    "wrong,error",
    [
        ({"model": "other"}, anthropic.NotFoundError),
        ({"max_tokens": 0}, anthropic.BadRequestError),
        ({"messages": [{"role": "user", "content": "count " * 3000}]}, anthropic.BadRequestError),
        ({"messages": "hello"}, anthropic.BadRequestError),
    ],
    ids=["model", "max_tokens", "long_prompt", "messages_of_wrong_type"],
)
def test_a_bad_request_raises_the_class_for_its_status(client, wrong, error, stream):
    with pytest.raises(error):
        ask(client, stream=stream, **wrong)


def test_an_error_of_the_gateway_is_one_that_the_client_knows(gateway: Gateway):
    with anthropic.Anthropic(base_url=gateway.url, api_key="unused", max_retries=0) as client:
        with pytest.raises(anthropic.NotFoundError) as caught:
            ask(client, model="other")
        assert caught.value.body["error"]["type"] == "not_found_error"
        image = {"type": "image", "source": {"type": "url", "url": "https://example.invalid/a.png"}}
        with pytest.raises(anthropic.BadRequestError) as caught:
            ask(client, messages=[{"role": "user", "content": [image]}])
        assert "remote_media" in caught.value.body["error"]["message"]


def test_closing_a_stream_frees_the_engine(client, idle: Engine):
    with freed_early(idle):
        stream = ask(
            client,
            messages=[{"role": "user", "content": "count please"}],
            max_tokens=wire.ENDLESS_TOKENS,
            stream=True,
        )
        for event in stream:
            if event.type == "content_block_delta":
                break
        stream.close()


def test_the_gateway_s_record_has_the_engine_s_counts(gateway: Gateway):
    with anthropic.Anthropic(base_url=gateway.url, api_key="unused", max_retries=0) as client:
        for stream in (True, False):
            name = f"messages-{stream}"
            answer = client.messages.with_raw_response.create(
                model="tiny", max_tokens=300, messages=HELLO, stream=stream, extra_headers={"X-Request-Id": name}
            ).parse()
            if stream:
                (usage,) = [event.usage for event in answer if event.type == "message_delta"]
            else:
                usage = answer.usage
            record = gateway.settled(name)
            assert (record["endpoint"], record["outcome"]) == ("messages", "ok")
            assert record["summary"]["completion_tokens"] == usage.output_tokens
            assert record["summary"]["prompt_tokens"] == (usage.input_tokens or record["summary"]["prompt_tokens"])
            assert (record["summary"]["decode_tps"] is not None) is stream
