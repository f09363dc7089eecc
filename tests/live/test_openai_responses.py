"""openai-python's Responses, straight to vLLM and through the gateway: a user cannot tell the two apart."""

from collections.abc import Iterator

import openai
import pytest

from tests.live.rig import wire
from tests.live.rig.engine import Engine
from tests.live.rig.gateway import Gateway
from tests.live.rig.leaving import freed_early
from tests.live.rig.ways import Served

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
ENDLESS = {"model": "tiny", "input": "count please", "max_output_tokens": wire.ENDLESS_TOKENS}


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=served.base_url, api_key="unused", max_retries=0, timeout=60) as client:
        yield client


def kinds(events: list) -> list[str]:
    """The types of the events, each once where it repeats."""
    seen: list[str] = []
    for event in events:
        if not seen or seen[-1] != event.type:
            seen.append(event.type)
    return seen


def test_an_answer_in_one_piece_has_reasoning_text_and_usage(client):
    answer = client.responses.create(model="tiny", input="hello there", temperature=0)

    assert answer.status == "completed"
    assert [item.type for item in answer.output] == ["reasoning", "message"]
    assert answer.output[0].content[0].text
    assert answer.output_text
    assert answer.usage.output_tokens > answer.usage.output_tokens_details.reasoning_tokens > 0


def test_a_stream_says_the_same_as_an_answer_in_one_piece(client):
    whole = client.responses.create(model="tiny", input="hello there", temperature=0)
    events = list(client.responses.create(model="tiny", input="hello there", temperature=0, stream=True))

    assert kinds(events)[0] == "response.created"
    assert kinds(events)[-1] == "response.completed"
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == whole.output_text
    reasoning = "".join(e.delta for e in events if e.type == "response.reasoning_text.delta")
    assert reasoning == whole.output[0].content[0].text
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].response.usage.output_tokens == whole.usage.output_tokens


def test_the_streaming_helper_reads_it_too(client):
    with client.responses.stream(model="tiny", input="hello there", temperature=0) as stream:
        final = stream.get_final_response()

    assert final.output_text


def test_an_answer_that_is_cut_short_says_so(client):
    answer = client.responses.create(model="tiny", input="count please", temperature=0, max_output_tokens=8)

    assert answer.status == "incomplete"
    assert answer.usage.output_tokens == 8


def test_a_tool_is_called_with_whole_arguments(client):
    events = list(
        client.responses.create(model="tiny", input="what about music", temperature=0, tools=[WEATHER], stream=True)
    )

    calls = [item for item in events[-1].response.output if item.type == "function_call"]
    assert calls[0].name == "get_weather"
    assert '"city"' in calls[0].arguments


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    "wrong,error",
    [
        ({"model": "other"}, openai.NotFoundError),
        ({"temperature": -3}, openai.BadRequestError),
        ({"input": "count " * 3000}, openai.BadRequestError),
        ({"input": 7}, openai.BadRequestError),
        ({"previous_response_id": "resp_nothing"}, openai.NotFoundError),
        ({"background": True}, openai.BadRequestError),
    ],
    ids=["model", "temperature", "long_input", "input_of_wrong_type", "nothing_before", "background"],
)
def test_a_bad_request_raises_the_class_for_its_status(client, wrong, error, stream):
    with pytest.raises(error) as caught:
        client.responses.create(**{"model": "tiny", "input": "hello there", "stream": stream, **wrong})

    assert caught.value.body["message"]


@pytest.mark.parametrize("call", ["retrieve", "cancel"])
def test_a_response_that_is_not_there_is_not_found(client, call):
    with pytest.raises(openai.NotFoundError):
        getattr(client.responses, call)("resp_0123456789abcdef")


def test_closing_a_stream_frees_the_engine(client, idle: Engine):
    with freed_early(idle):
        stream = client.responses.create(**ENDLESS, stream=True, extra_body={"ignore_eos": True})
        for event in stream:
            if event.type.endswith(".delta"):
                break
        assert idle.running() == 1
        stream.close()


def test_the_gateway_s_record_has_the_engine_s_counts(gateway: Gateway):
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="unused", max_retries=0) as client:
        for stream in (True, False):
            name = f"responses-{stream}"
            answer = client.responses.with_raw_response.create(
                model="tiny",
                input="hello there",
                temperature=0,
                stream=stream,
                extra_headers={"X-Request-Id": name},
            )
            usage = list(answer.parse())[-1].response.usage if stream else answer.parse().usage
            record = gateway.settled(name)
            assert (record["endpoint"], record["outcome"]) == ("responses", "ok")
            assert record["summary"]["prompt_tokens"] == usage.input_tokens
            assert record["summary"]["completion_tokens"] == usage.output_tokens
            assert record["summary"]["reasoning_tokens"] == usage.output_tokens_details.reasoning_tokens
            assert (record["summary"]["decode_tps"] is not None) is stream
