"""The bytes of a vLLM server for chat: response heads, chat chunks, answers, metrics.

Pure rendering for the mock engine; the layout is what vLLM 0.32 sends (one SSE event per HTTP chunk, a role
chunk with the first token, no chunk for the `</think>` token, `delta: {}` with the finish reason, usage with
`choices: []` only when asked, `[DONE]`). No clock and no sockets here.
"""

from __future__ import annotations

from dataclasses import dataclass

MODEL = "mock-model"
CRLF = b"\r\n"
CREATED = 1_796_089_936
# What a small model says; the leading spaces are part of the tokens, and the chunks come out at 227 to 245 bytes.
WORDS = (" The", " small", " model", " waits", " for", " a", " considerable", " answer", " step", " by", " step", ".")
FINGERPRINT = "vllm-0.32.0-a9a12ba6"
# The event's text up to the stream's id. The id and the stamp below are the only parts that vary at run time: within a
# stream two events of a channel differ in their text alone, as with vLLM, which states one moment for all of them.
_ID_OPENING = b'data: {"id":"chatcmpl-'
_ID_CLOSING = b'","object":"chat.completion.chunk","created":%d,"model":"%b",' % (CREATED, MODEL.encode())
STAMP_MARK = b"@"
"""Before a stamp, and nowhere else in a stream."""
STREAM_ID_DIGITS = 16
STAMP_DIGITS = 10
STAMP_BASE = 1_000_000_000
STAMP_MODULUS = 9_000_000_000
ENDING = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Event:
    """One SSE event in its HTTP chunk, around the parts known only when it is sent.

    The bytes on the wire are `opening + stream_key(...) + middle + closing`, with the stamp before `closing` where the
    event is a token's (`stamped`). The chunk's size (in `opening`) already counts key and stamp: both have a fixed
    length.
    """

    opening: bytes
    middle: bytes
    closing: bytes
    stamped: bool


def stamp(now_us: int) -> bytes:
    """Ten digits at the end of a token's text that carry the moment of sending, in microseconds of the monotonic clock.

    Modulo 9,000 s, and never with a leading zero, so that the length is fixed.
    """
    return b"%d" % (STAMP_BASE + now_us % STAMP_MODULUS)


def lag_us(stamped: int, now_us: int) -> int:
    """Microseconds from the stamp to `now_us` (one monotonic clock, less than 9,000 s apart)."""
    return (now_us - (stamped - STAMP_BASE)) % STAMP_MODULUS


def stream_key(serial: int) -> bytes:
    """The varying id of a stream with the constant text behind it."""
    return b"%016x" % serial + _ID_CLOSING


def _event(rest: str, after_stamp: str = "") -> Event:
    """An event that ends with `rest`; with `after_stamp`, a stamp stands between the two."""
    stamped = bool(after_stamp)
    middle = rest.encode() if stamped else b""
    closing = (after_stamp or rest).encode() + b"\n\n\r\n"
    payload_bytes = len(_ID_OPENING) + len(stream_key(0)) + len(middle) + len(closing) - len(CRLF)
    payload_bytes += STAMP_DIGITS if stamped else 0
    return Event(opening=b"%x\r\n" % payload_bytes + _ID_OPENING, middle=middle, closing=closing, stamped=stamped)


def _delta(channel: str, token: str) -> Event:
    return _event(
        f'"choices":[{{"index":0,"delta":{{"{channel}":"{token}{STAMP_MARK.decode()}',
        '"},"logprobs":null,"finish_reason":null,"token_ids":null}]}',
    )


def _role() -> Event:
    return _event(
        '"choices":[{"index":0,"delta":{"role":"assistant","content":""},'
        '"logprobs":null,"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null}'
    )


def _finish(*, carries_fingerprint: bool) -> Event:
    fingerprint = f',"system_fingerprint":"{FINGERPRINT}"' if carries_fingerprint else ""
    return _event(
        '"choices":[{"index":0,"delta":{},"logprobs":null,'
        f'"finish_reason":"stop","stop_reason":null,"token_ids":null}}]{fingerprint}}}'
    )


def _usage(prompt_tokens: int, channels: ChannelTokens) -> Event:
    total = prompt_tokens + channels.completion_tokens
    return _event(
        f'"choices":[],"usage":{{"prompt_tokens":{prompt_tokens},"total_tokens":{total},'
        f'"completion_tokens":{channels.completion_tokens},'
        f'"completion_tokens_details":{{"reasoning_tokens":{channels.reasoning}}}}},'
        f'"system_fingerprint":"{FINGERPRINT}"}}'
    )


@dataclass(frozen=True, slots=True)
class ChannelTokens:
    """How the tokens of one answer fall on the channels.

    With reasoning: one `<think>`, `reasoning` tokens, one `</think>`, `content` tokens, one end token. Answers of
    fewer than five tokens have no reasoning: their first token makes the role chunk only.
    """

    completion_tokens: int
    reasoning: int
    content: int

    @property
    def events(self) -> int:
        """SSE events of a stream without usage, `[DONE]` counted: role, deltas, finish, done."""
        return 1 + self.reasoning + self.content + 1 + 1


def channel_tokens(completion_tokens: int) -> ChannelTokens:
    """Split an answer of `completion_tokens` (>= 2): half reasoning, half content."""
    if completion_tokens < 5:
        return ChannelTokens(completion_tokens=completion_tokens, reasoning=0, content=max(0, completion_tokens - 2))
    deltas = completion_tokens - 3
    reasoning = deltas // 2
    return ChannelTokens(completion_tokens=completion_tokens, reasoning=reasoning, content=deltas - reasoning)


def stream_steps(completion_tokens: int, *, prompt_tokens: int, with_usage: bool) -> tuple[tuple[Event, ...], ...]:
    """The events of each engine step of a stream, one step a token; the last one is followed by `ENDING`."""
    channels = channel_tokens(completion_tokens)
    steps: list[tuple[Event, ...]] = [(_role(),)]
    steps += [(_delta("reasoning", WORDS[i % len(WORDS)]),) for i in range(channels.reasoning)]
    if channels.reasoning:
        steps.append(())
    steps += [(_delta("content", WORDS[i % len(WORDS)]),) for i in range(channels.content)]
    finish = _finish(carries_fingerprint=not with_usage)
    steps.append((finish, _usage(prompt_tokens, channels)) if with_usage else (finish,))
    return tuple(steps)


def stream_head(date: str) -> bytes:
    """The head of a streamed answer; `date` as in the HTTP Date header."""
    return (
        f"HTTP/1.1 200 OK\r\ndate: {date}\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
        "vary: Origin\r\ntransfer-encoding: chunked\r\n\r\n"
    ).encode()


def whole_response(status: str, date: str, *, content_type: str, body: bytes) -> bytes:
    """A response with Content-Length, as uvicorn writes it."""
    head = f"HTTP/1.1 {status}\r\ndate: {date}\r\nserver: uvicorn\r\ncontent-length: {len(body)}\r\n"
    if body:
        head += f"content-type: {content_type}\r\n"
    return (head + "vary: Origin\r\n\r\n").encode() + body


def chat_answer(completion_tokens: int, *, prompt_tokens: int) -> bytes:
    """The JSON body of a chat answer with `stream: false`."""
    channels = channel_tokens(completion_tokens)
    content = "".join(WORDS[i % len(WORDS)] for i in range(channels.content))
    reasoning = "".join(WORDS[i % len(WORDS)] for i in range(channels.reasoning))
    return (
        f'{{"id":"chatcmpl-8001c1eba36cece1","object":"chat.completion","created":{CREATED},"model":"{MODEL}",'
        f'"choices":[{{"index":0,"message":{{"role":"assistant","content":"{content}","refusal":null,'
        f'"annotations":null,"audio":null,"function_call":null,"reasoning":"{reasoning}"}},"logprobs":null,'
        '"finish_reason":"stop","stop_reason":null,"token_ids":null,"routed_experts":null}],"service_tier":null,'
        f'"system_fingerprint":"{FINGERPRINT}","usage":{{"prompt_tokens":{prompt_tokens},'
        f'"total_tokens":{prompt_tokens + completion_tokens},"completion_tokens":{completion_tokens},'
        f'"prompt_tokens_details":null,"completion_tokens_details":{{"reasoning_tokens":{channels.reasoning}}}}},'
        '"prompt_logprobs":null,"prompt_token_ids":null,"prompt_text":null,"kv_transfer_params":null,'
        '"ec_transfer_params":null,"metrics":null}'
    ).encode()


def models_answer() -> bytes:
    """The body of `GET /v1/models`."""
    return (
        f'{{"object":"list","data":[{{"id":"{MODEL}","object":"model","created":1796089908,"owned_by":"vllm",'
        f'"root":"./{MODEL}","parent":null,"max_model_len":131072,"permission":[]}}]}}'
    ).encode()
