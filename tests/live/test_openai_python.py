"""openai-python, straight to vLLM and through the gateway: a user must not be able to tell the two apart."""

from collections.abc import Iterator

import openai
import pytest

from tests.live.rig import wire
from tests.live.rig.crowd import in_a_loop
from tests.live.rig.engine import Engine
from tests.live.rig.leaving import freed_early
from tests.live.rig.ways import Served

HELLO = [{"role": "user", "content": "hello there"}]
COUNT = [{"role": "user", "content": "count please"}]
ENDLESS = {
    "model": "tiny",
    "messages": COUNT,
    "max_tokens": wire.ENDLESS_TOKENS,
    "extra_body": {"ignore_eos": True},
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=served.base_url, api_key="unused", max_retries=0, timeout=60) as client:
        yield client


def reasoning_of(part) -> str:
    """vLLM's field beside `content`, which the client's types do not know."""
    return getattr(part, "reasoning", None) or ""


def test_models_are_listed(client):
    assert [model.id for model in client.models.list()] == ["tiny"]


def test_a_stream_carries_reasoning_then_content_and_a_finish_reason(client):
    chunks = list(client.chat.completions.create(model="tiny", messages=HELLO, temperature=0, stream=True))

    assert "".join(reasoning_of(chunk.choices[0].delta) for chunk in chunks)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason] == ["stop"]
    assert len({chunk.id for chunk in chunks}) == 1


def test_usage_comes_as_a_last_chunk_without_choices_when_it_is_asked_for(client):
    *deltas, last = client.chat.completions.create(
        model="tiny", messages=HELLO, temperature=0, stream=True, stream_options={"include_usage": True}
    )

    assert last.choices == []
    assert last.usage.completion_tokens > last.usage.completion_tokens_details.reasoning_tokens > 0
    assert last.usage.total_tokens == last.usage.prompt_tokens + last.usage.completion_tokens
    assert all(len(chunk.choices) == 1 and chunk.usage is None for chunk in deltas)


@pytest.mark.parametrize("options", [None, {"include_usage": False}], ids=["silent", "declined"])
def test_no_usage_reaches_a_client_that_did_not_ask(client, options):
    extra = {} if options is None else {"stream_options": options}
    chunks = list(client.chat.completions.create(model="tiny", messages=HELLO, temperature=0, stream=True, **extra))

    assert all(len(chunk.choices) == 1 and chunk.usage is None for chunk in chunks)


def test_usage_on_every_chunk_is_left_alone_when_it_is_asked_for(client):
    *deltas, last = client.chat.completions.create(
        model="tiny",
        messages=HELLO,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
    )

    counts = [chunk.usage.completion_tokens for chunk in deltas]
    assert counts == sorted(counts)
    assert last.usage.completion_tokens >= counts[-1] > 0


def test_an_answer_in_one_piece_carries_reasoning_content_and_usage(client):
    answer = client.chat.completions.create(model="tiny", messages=HELLO, temperature=0)

    (choice,) = answer.choices
    assert choice.message.content
    assert reasoning_of(choice.message)
    assert choice.finish_reason == "stop"
    assert answer.usage.completion_tokens > answer.usage.completion_tokens_details.reasoning_tokens > 0


def test_a_stream_says_the_same_as_an_answer_in_one_piece(client):
    whole = client.chat.completions.create(model="tiny", messages=COUNT, temperature=0).choices[0].message
    chunks = list(client.chat.completions.create(model="tiny", messages=COUNT, temperature=0, stream=True))

    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.content
    assert "".join(reasoning_of(chunk.choices[0].delta) for chunk in chunks) == reasoning_of(whole)


def test_a_streamed_tool_call_has_whole_arguments(client):
    chunks = list(
        client.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "what about music"}],
            temperature=0,
            tools=[WEATHER],
            stream=True,
        )
    )

    calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
    assert calls[0].function.name == "get_weather"
    assert '"city"' in "".join(call.function.arguments or "" for call in calls)
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_several_choices_all_finish(client):
    chunks = list(client.chat.completions.create(model="tiny", messages=HELLO, temperature=1, seed=3, n=3, stream=True))

    finished = [choice.index for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    assert sorted(finished) == [0, 1, 2]


@pytest.mark.parametrize("usage", [True, False], ids=["usage", "no_usage"])
def test_streamed_completions_have_usage_only_when_asked(client, usage):
    extra = {"stream_options": {"include_usage": True}} if usage else {}
    chunks = list(
        client.completions.create(model="tiny", prompt="1 2 3 4", max_tokens=24, temperature=0, stream=True, **extra)
    )

    assert "".join(choice.text for chunk in chunks for choice in chunk.choices)
    assert [len(chunk.choices) for chunk in chunks if chunk.usage is not None] == ([0] if usage else [])
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices][-1] == "length"


def test_completions_in_one_piece(client):
    answer = client.completions.create(model="tiny", prompt="1 2 3 4", max_tokens=24, temperature=0)

    assert answer.choices[0].text
    assert answer.usage.completion_tokens == 24


def test_closing_a_stream_frees_the_engine(client, idle: Engine):
    with freed_early(idle):
        stream = client.chat.completions.create(**ENDLESS, stream=True)
        next(stream)
        assert idle.running() == 1
        stream.close()


def test_a_client_time_out_frees_the_engine(client, idle: Engine):
    with freed_early(idle), pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=1).chat.completions.create(**ENDLESS)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    "wrong, error",
    [
        ({"model": "other"}, openai.NotFoundError),
        ({"max_tokens": -1}, openai.BadRequestError),
        ({"max_tokens": 100_000}, openai.BadRequestError),
        ({"temperature": -3}, openai.BadRequestError),
        ({"messages": [{"role": "user", "content": "count " * 3000}]}, openai.BadRequestError),
        ({"messages": "hello"}, openai.BadRequestError),
    ],
    ids=["model", "negative_max_tokens", "large_max_tokens", "temperature", "long_prompt", "messages_of_wrong_type"],
)
def test_a_bad_request_raises_the_class_for_its_status(client, wrong, error, stream):
    with pytest.raises(error) as caught:
        client.chat.completions.create(**{"model": "tiny", "messages": HELLO, "stream": stream, **wrong})

    assert caught.value.body["message"]
    assert caught.value.type


def test_a_path_that_does_not_exist_is_not_found(client):
    with pytest.raises(openai.NotFoundError):
        client.get("/nothing/here", cast_to=object)


def test_a_raw_response_has_status_headers_and_the_parsed_answer(client):
    raw = client.chat.completions.with_raw_response.create(model="tiny", messages=HELLO, temperature=0, max_tokens=8)

    assert raw.status_code == 200
    assert raw.headers["content-type"] == "application/json"
    assert raw.parse().usage.completion_tokens == 8


def test_a_raw_streamed_response_can_still_be_read_as_a_stream(client):
    raw = client.chat.completions.with_raw_response.create(
        model="tiny", messages=HELLO, temperature=0, max_tokens=8, stream=True
    )

    assert raw.headers["content-type"].startswith("text/event-stream")
    assert [chunk.choices[0].finish_reason for chunk in raw.parse()][-1] == "length"


def test_a_streaming_response_can_be_read_by_lines(client):
    with client.chat.completions.with_streaming_response.create(
        model="tiny", messages=HELLO, temperature=0, max_tokens=8, stream=True
    ) as response:
        lines = [line for line in response.iter_lines() if line]

    assert lines[-1] == "data: [DONE]"
    assert all(line.startswith("data: {") for line in lines[:-1])


def test_a_streaming_response_that_is_left_frees_the_engine(client, idle: Engine):
    with (
        freed_early(idle),
        client.chat.completions.with_streaming_response.create(**ENDLESS, stream=True) as response,
    ):
        next(response.iter_lines())


def test_the_asynchronous_client_streams_and_cancels(served: Served, idle: Engine):
    async def talk() -> str | None:
        async with openai.AsyncOpenAI(base_url=served.base_url, api_key="unused", max_retries=0) as client:
            stream = await client.chat.completions.create(model="tiny", messages=HELLO, temperature=0, stream=True)
            reasons = [chunk.choices[0].finish_reason async for chunk in stream]
            endless = await client.chat.completions.create(**ENDLESS, stream=True)
            await anext(endless)
            await endless.close()
            return reasons[-1]

    with freed_early(idle):
        assert in_a_loop(talk()) == "stop"
