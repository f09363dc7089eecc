"""The four APIs that engines stream: what each is asked, what a short answer looks like, how an error ends a stream.

For tests of what holds on all of them alike.  Events are as vLLM names and shapes them, with few fields; an answer
says "hello", in one piece of text after its opening events.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from gateway.core.stream.http1 import TERMINATOR
from gateway.core.stream.summary import Dialect
from tests.fakes.backend import End, Script, answer
from tests.fakes.client import Answer
from tests.fakes.engine_events import DONE, chat, role, text, typed, usage

HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
JSON_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


@dataclass(frozen=True, slots=True, eq=False)
class Api:
    """One API.  ``opening`` and ``hello`` come before ``ending``, which is the engine's own end of a stream."""

    name: str
    path: str
    dialect: Dialect
    asked: tuple[tuple[str, Any], ...]
    opening: tuple[bytes, ...]
    hello: bytes
    ending: tuple[bytes, ...]
    whole: bytes

    def request(self, *, stream: bool = True) -> dict[str, Any]:
        """The body of a request; usage is asked for where that is an option, so that nothing is taken out."""
        body = {"model": "tiny", "stream": stream, **dict(self.asked)}
        if stream and self.dialect in {Dialect.CHAT, Dialect.COMPLETIONS}:
            body["stream_options"] = {"include_usage": True}
        return body

    @property
    def begun(self) -> tuple[bytes, ...]:
        """A stream up to its text."""
        return (*self.opening, self.hello)

    @property
    def stream(self) -> bytes:
        """The bytes of a whole stream."""
        return b"".join((*self.opening, self.hello, *self.ending))

    def good(self, *, stream: bool = True) -> Script:
        """An answer that ends well."""
        if not stream:
            return Script((answer(self.whole),))
        return Script((HEAD, *map(chunk, (*self.begun, *self.ending)), TERMINATOR))

    def breaking(self, *pieces: bytes, end: End) -> Script:
        """A stream that has begun and then goes on with ``pieces``, as they are, and ``end``."""
        return Script((HEAD, *map(chunk, self.begun), *pieces), end)

    def told(self, body: bytes) -> str:
        """What the one error event says that ``body`` is: its code, or its type in Messages.

        Raises AssertionError where it is anything else than an error event with the end of its API.
        """
        first, _, rest = body.partition(b"\n\n")
        lines = first.split(b"\n")
        data = json.loads(lines[-1].removeprefix(b"data: "))
        match self.dialect:
            case Dialect.MESSAGES:
                expected = (b"event: error", b"", {"type": "error"})
            case Dialect.RESPONSES:
                expected = (b"event: error", b"", {"type": "error", "code": data["error"]["code"]})
            case _:
                expected = (lines[-1], DONE, {})
        line, end, fields = expected
        if (lines[0], rest) != (line, end) or not data["error"]["message"] or data | fields != data:
            raise AssertionError(f"no error event and its end: {body!r}")
        found: str = data["error"].get("code") or data["error"]["type"]
        return found

    def told_last(self, body: bytes) -> str:
        """What the error event says that ends ``body``; see `told`."""
        begins = b"event: error\n" if self.dialect in {Dialect.RESPONSES, Dialect.MESSAGES} else b'data: {"error"'
        return self.told(body[body.rindex(begins) :])

    def refused(self, seen: Answer) -> str:
        """What an error answer in one piece says that it is: its code, or its type in Messages."""
        value = json.loads(seen.body)
        if seen.headers.get("x-gateway-error") != "1" or not value["error"]["message"]:
            raise AssertionError(f"no error of the gateway's own: {seen}")
        found: str = value["error"].get("code") or value["error"]["type"]
        return found

    def names(self, code: str, *, status: int) -> str:
        """What `told` and `refused` find for the gateway's ``code`` and its ``status``."""
        return _ANTHROPIC[status] if self.dialect is Dialect.MESSAGES else code


_ANTHROPIC: Final = {
    422: "invalid_request_error",
    429: "rate_limit_error",
    502: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def _body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


_USAGE: Final = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
_TYPED_USAGE: Final = {"input_tokens": 7, "output_tokens": 2}
_MESSAGE: Final = {"role": "assistant", "content": "hello"}
_OUTPUT: Final = {"type": "message", "content": [{"type": "output_text", "text": "hello"}]}

CHAT: Final = Api(
    name="chat",
    path="/v1/chat/completions",
    dialect=Dialect.CHAT,
    asked=(("messages", [{"role": "user", "content": "hi"}]),),
    opening=(role(),),
    hello=chat(content="hello"),
    ending=(chat(finish="stop"), usage(2), DONE),
    whole=_body(choices=[{"index": 0, "message": _MESSAGE, "finish_reason": "stop"}], usage=_USAGE),
)
COMPLETIONS: Final = Api(
    name="completions",
    path="/v1/completions",
    dialect=Dialect.COMPLETIONS,
    asked=(("prompt", "hi"),),
    opening=(text(""),),
    hello=text("hello"),
    ending=(text("", finish="stop"), usage(2), DONE),
    whole=_body(choices=[{"index": 0, "text": "hello", "finish_reason": "stop"}], usage=_USAGE),
)
RESPONSES: Final = Api(
    name="responses",
    path="/v1/responses",
    dialect=Dialect.RESPONSES,
    asked=(("input", "hi"),),
    opening=(typed("response.created", response={"id": "resp_1", "status": "in_progress"}),),
    hello=typed("response.output_text.delta", delta="hello"),
    ending=(typed("response.completed", response={"id": "resp_1", "status": "completed", "usage": _TYPED_USAGE}),),
    whole=_body(id="resp_1", status="completed", output=[_OUTPUT], usage=_TYPED_USAGE),
)
MESSAGES: Final = Api(
    name="messages",
    path="/v1/messages",
    dialect=Dialect.MESSAGES,
    asked=(("messages", [{"role": "user", "content": "hi"}]), ("max_tokens", 9)),
    opening=(
        typed("message_start", message={"id": "m", "usage": {"input_tokens": 7, "output_tokens": 0}}),
        typed("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    ),
    hello=typed("content_block_delta", index=0, delta={"type": "text_delta", "text": "hello"}),
    ending=(
        typed("content_block_stop", index=0),
        typed("message_delta", delta={"stop_reason": "end_turn"}, usage=_TYPED_USAGE),
        typed("message_stop"),
    ),
    whole=_body(content=[{"type": "text", "text": "hello"}], stop_reason="end_turn", usage=_TYPED_USAGE),
)
APIS: Final = (CHAT, COMPLETIONS, RESPONSES, MESSAGES)


def thought(api: Api, words: str, *, block: int = 0) -> bytes:
    """An event with a piece of reasoning, in Messages of that block; completions have none."""
    match api.dialect:
        case Dialect.CHAT:
            return chat(reasoning=words)
        case Dialect.RESPONSES:
            return typed("response.reasoning_text.delta", delta=words, item_id="rs_1", output_index=0, content_index=0)
        case Dialect.MESSAGES:
            delta = {"type": "thinking_delta", "thinking": words}
            return typed("content_block_delta", index=block, delta=delta)
        case _:
            raise ValueError(api.name)


def thinking(api: Api, first: str, last: str) -> tuple[bytes, ...]:
    """A stream that has thought ``first``, said hello, and is at thinking ``last``."""
    if api.dialect is not Dialect.MESSAGES:
        return (*api.opening, thought(api, first), api.hello, thought(api, last))
    begin = [
        typed("content_block_start", index=at, content_block={"type": kind, kind: ""})
        for at, kind in enumerate(("thinking", "text", "thinking"))
    ]
    end = [typed("content_block_stop", index=at) for at in range(2)]
    said = api.hello.replace(b'"index":0', b'"index":1')
    thoughts = [thought(api, first), thought(api, last, block=2)]
    return (api.opening[0], begin[0], thoughts[0], end[0], begin[1], said, end[1], begin[2], thoughts[1])
