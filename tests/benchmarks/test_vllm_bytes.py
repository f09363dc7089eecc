"""The mock's bytes: what vLLM sends, byte for byte but for the model's name."""

import json

import pytest

from benchmarks import vllm_bytes
from benchmarks.vllm_bytes import channel_tokens, stream_steps

# A chunk as a real vLLM 0.32 sent it (its model was called "tiny").
RECORDED = (
    b'dc\r\ndata: {"id":"chatcmpl-9749c64cf0c1fb9e","object":"chat.completion.chunk","created":1796089909,'
    b'"model":"tiny","choices":[{"index":0,"delta":{"reasoning":" small"},"logprobs":null,"finish_reason":null,'
    b'"token_ids":null}]}\n\n\r\n'
)


def on_the_wire(event: vllm_bytes.Event, *, serial: int = 0x9749C64CF0C1FB9E, now_us: int = 796_089_909) -> bytes:
    stamp = vllm_bytes.stamp(now_us) if event.stamped else b""
    return event.opening + vllm_bytes.stream_key(serial) + event.middle + stamp + event.closing


def whole_stream(tokens: int, *, with_usage: bool) -> bytes:
    steps = stream_steps(tokens, prompt_tokens=17, with_usage=with_usage)
    return b"".join(on_the_wire(event) for step in steps for event in step) + vllm_bytes.ENDING


def unchunked(data: bytes) -> list[bytes]:
    """The HTTP chunks of a body; fails on wrong sizes or a missing end."""
    chunks = []
    while True:
        size, _, data = data.partition(b"\r\n")
        chunk, ending, data = data[: int(size, 16)], data[int(size, 16) :][:2], data[int(size, 16) + 2 :]
        assert ending == b"\r\n"
        if not chunk:
            assert data == b""
            return chunks
        chunks.append(chunk)


def payloads(data: bytes) -> list[dict[str, object]]:
    *events, done = unchunked(data)
    assert done == b"data: [DONE]\n\n"
    return [json.loads(event.removeprefix(b"data: ").removesuffix(b"\n\n")) for event in events]


def test_a_token_chunk_has_the_bytes_of_a_recorded_one() -> None:
    second_delta = stream_steps(16, prompt_tokens=17, with_usage=False)[2][0]
    # Two hex digits of size, the name, when it was, and the stamp in the text: all else must be equal.
    expected = RECORDED.replace(b'"tiny"', b'"mock-model"').replace(b"dc\r\n", b"ed\r\n", 1)
    expected = expected.replace(b"1796089909", b"%d" % vllm_bytes.CREATED).replace(b" small", b" small@1796089909")
    assert on_the_wire(second_delta) == expected


@pytest.mark.parametrize("tokens", [2, 3, 4, 5, 16, 163])
@pytest.mark.parametrize("with_usage", [False, True])
def test_every_event_is_one_http_chunk_and_the_client_can_count_them(tokens: int, with_usage: bool) -> None:
    chunks = unchunked(whole_stream(tokens, with_usage=with_usage))
    assert len(chunks) == channel_tokens(tokens).events + with_usage


@pytest.mark.parametrize("tokens", [2, 3, 4, 5, 16, 163])
def test_every_token_is_one_step_of_the_engine(tokens: int) -> None:
    assert len(stream_steps(tokens, prompt_tokens=17, with_usage=True)) == tokens


def test_reasoning_comes_first_and_usage_counts_both_channels() -> None:
    *deltas, finish, usage = payloads(whole_stream(20, with_usage=True))
    names = [next(reversed(event["choices"][0]["delta"])) for event in deltas]  # type: ignore[index]
    assert names == ["content"] + ["reasoning"] * 8 + ["content"] * 9
    assert finish["choices"][0]["finish_reason"] == "stop"  # type: ignore[index]
    assert usage["choices"] == []
    assert usage["usage"] == {
        "prompt_tokens": 17,
        "total_tokens": 37,
        "completion_tokens": 20,
        "completion_tokens_details": {"reasoning_tokens": 8},
    }


def test_usage_is_not_sent_unasked() -> None:
    assert b'"usage"' not in whole_stream(20, with_usage=False)


@pytest.mark.parametrize("now_us", [0, 1, 8_999_999_999, 9_000_000_000, 123_456_789_012_345])
def test_a_stamp_has_ten_digits_and_tells_the_time_since(now_us: int) -> None:
    stamp = vllm_bytes.stamp(now_us)
    assert len(stamp) == 10
    assert not stamp.startswith(b"0")
    assert vllm_bytes.lag_us(int(stamp), now_us + 250) == 250


def test_a_whole_answer_is_json_with_the_same_counts() -> None:
    answer = json.loads(vllm_bytes.chat_answer(20, prompt_tokens=17))
    assert answer["usage"]["completion_tokens"] == 20
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == 8
    assert answer["choices"][0]["message"]["content"].startswith(" The small")
