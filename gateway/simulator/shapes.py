"""The bytes of vLLM's answers: stream events, whole bodies and usage, for chat and completions.

Pure rendering: no clock, no sockets, no decisions about what is sent when (``answer.py`` decides).  The layout is
what vLLM 0.32 was recorded to send, key for key; one event travels as one HTTP chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

DONE: Final = b"e\r\ndata: [DONE]\n\n\r\n"
TERMINATOR: Final = b"0\r\n\r\n"
NULL: Final = b"null"
_ROLE_DELTA: Final = b'{"role":"assistant","content":""}'

quote: Final = msgspec.json.encode


class Form(StrEnum):
    """Which API an answer belongs to."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    MESSAGES = "messages"


_ID_PREFIXES: Final = {
    Form.CHAT: "chatcmpl-", Form.COMPLETIONS: "cmpl-", Form.RESPONSES: "", Form.MESSAGES: "chatcmpl-",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Usage:
    """The counts of one answer; ``reasoning_tokens`` is None and ``cached_tokens`` 0 where vLLM gives no details."""

    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int | None
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Identity:
    """What every event of one answer repeats; ``id`` without its prefix, ``created`` in Unix seconds.

    The id of a response is whole as it is: the client may name it.
    """

    form: Form
    id: str
    created: int
    model: str
    fingerprint: str

    @property
    def full_id(self) -> str:
        """The id with the prefix of its API."""
        return _ID_PREFIXES[self.form] + self.id


@dataclass(frozen=True, slots=True)
class Piece:
    """One event's or one choice's changing parts, as JSON text; ``finish`` is the finish reason, "" before it.

    ``stop_reason`` is the stop string that ended the answer, None where there was none.
    """

    body: bytes  # the delta of a chat event, the quoted text of a completions event
    finish: str = ""
    stop_reason: str | None = None
    logprobs: bytes = NULL
    token_ids: bytes = NULL
    usage: bytes = b""  # the quoted usage object, empty for none
    is_last: bool = False  # carries the fingerprint: no usage event follows


def framed(payload: bytes) -> bytes:
    """Return an event as one HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def error_event(message: str) -> bytes:
    """Return the framed event that tells a stream of an engine's end."""
    text = quote(message).decode()
    return framed(
        f'data: {{"error": {{"message": {text}, "type": "InternalServerError", "param": null, "code": 500}}}}\n\n'.encode()
    )


def usage_json(usage: Usage, *, whole: bool) -> bytes:
    """Return the usage object; ``whole`` as in a body, where keys without a value are null, not left out."""
    if usage.cached_tokens:
        cached = b',"prompt_tokens_details":{"cached_tokens":%d}' % usage.cached_tokens
    else:
        cached = b',"prompt_tokens_details":null' if whole else b""
    parts = (
        b'{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d'
        % (usage.prompt_tokens, usage.prompt_tokens + usage.completion_tokens, usage.completion_tokens),
        cached,
    )
    if usage.reasoning_tokens is not None:
        details = b',"completion_tokens_details":{"reasoning_tokens":%d}' % usage.reasoning_tokens
    else:
        details = b',"completion_tokens_details":null' if whole else b""
    return b"".join((*parts, details, b"}"))


class EventShapes:
    """Renders the events of one stream."""

    __slots__ = ("_fingerprint", "_form", "_head", "_openings")

    def __init__(self, identity: Identity, *, n: int) -> None:
        is_chat = identity.form is Form.CHAT
        kind = b"chat.completion.chunk" if is_chat else b"text_completion"
        self._form = identity.form
        self._fingerprint = b',"system_fingerprint":' + quote(identity.fingerprint)
        self._head = b'data: {"id":%b,"object":"%b","created":%d,"model":%b,"choices":[' % (
            quote(identity.full_id),
            kind,
            identity.created,
            quote(identity.model),
        )
        key = b'"delta":' if is_chat else b'"text":'
        self._openings = tuple(self._head + b'{"index":%d,' % index + key for index in range(n))

    def role(self, index: int, *, prompt_token_ids: bytes, usage: bytes) -> bytes:
        """Return the first event of a chat choice."""
        return framed(
            b"".join(
                (
                    self._openings[index],
                    _ROLE_DELTA,
                    b',"logprobs":null,"finish_reason":null}]',
                    usage and b',"usage":' + usage,
                    b',"prompt_token_ids":',
                    prompt_token_ids,
                    b',"prompt_text":null}\n\n',
                )
            )
        )

    def event(self, index: int, piece: Piece, *, prompt_token_ids: bytes = NULL) -> bytes:
        """Return one event; ``prompt_token_ids`` counts for completions only, where no role event carries them."""
        is_chat = self._form is Form.CHAT
        return framed(
            b"".join(
                (
                    self._openings[index],
                    piece.body,
                    b',"logprobs":',
                    piece.logprobs,
                    b',"finish_reason":',
                    quote(piece.finish) if piece.finish else NULL,
                    b',"stop_reason":' + quote(piece.stop_reason) if piece.finish or not is_chat else b"",
                    b"" if is_chat else b',"prompt_token_ids":' + prompt_token_ids,
                    b',"token_ids":',
                    piece.token_ids,
                    b"}]",
                    piece.usage and b',"usage":' + piece.usage,
                    self._fingerprint if piece.is_last else b"",
                    b"}\n\n",
                )
            )
        )

    def usage_event(self, usage: bytes, *, metrics: bytes) -> bytes:
        """Return the event after the last choice; ``metrics`` is empty where the server gives none."""
        tail = b',"metrics":' + metrics if metrics else b""
        return framed(b"".join((self._head, b'],"usage":', usage, self._fingerprint, tail, b"}\n\n")))


@dataclass(frozen=True, slots=True)
class WholeChoice:
    """One choice of a whole body; ``tool_call`` is (id, name, arguments)."""

    finish: str
    stop_reason: str | None
    content: str | None
    reasoning: str | None
    tool_call: tuple[str, str, str] | None
    logprobs: bytes
    token_ids: bytes


def whole_body(
    identity: Identity, choices: Sequence[WholeChoice], *, usage: bytes, prompt_token_ids: bytes, metrics: bytes
) -> bytes:
    """Return the body of an answer that is not streamed."""
    is_chat = identity.form is Form.CHAT
    render = _chat_choice if is_chat else _completions_choice
    return b"".join(
        (
            b'{"id":' + quote(identity.full_id),
            b',"object":"%b"' % (b"chat.completion" if is_chat else b"text_completion"),
            b',"created":%d,"model":%b,"choices":[' % (identity.created, quote(identity.model)),
            b",".join(render(index, choice, prompt_token_ids) for index, choice in enumerate(choices)),
            b'],"service_tier":null,"system_fingerprint":' + quote(identity.fingerprint),
            b',"usage":' + usage,
            b',"prompt_logprobs":null,"prompt_token_ids":%b,"prompt_text":null' % prompt_token_ids if is_chat else b"",
            b',"kv_transfer_params":null,"ec_transfer_params":null,"metrics":%b}' % (metrics or NULL),
        )
    )


def _chat_choice(index: int, choice: WholeChoice, _prompt_token_ids: bytes) -> bytes:
    tool = b""
    if choice.tool_call is not None:
        call_id, name, arguments = choice.tool_call
        tool = b',"tool_calls":[{"id":%b,"type":"function","function":{"name":%b,"arguments":%b}}]' % (
            quote(call_id),
            quote(name),
            quote(arguments),
        )
    return b"".join(
        (
            b'{"index":%d,"message":{"role":"assistant","content":%b' % (index, quote(choice.content)),
            b',"refusal":null,"annotations":null,"audio":null,"function_call":null',
            tool,
            b',"reasoning":' + quote(choice.reasoning),
            b'},"logprobs":%b,"finish_reason":%b' % (choice.logprobs, quote(choice.finish)),
            b',"stop_reason":%b,"token_ids":%b,"routed_experts":null}' % (quote(choice.stop_reason), choice.token_ids),
        )
    )


def _completions_choice(index: int, choice: WholeChoice, prompt_token_ids: bytes) -> bytes:
    return b"".join(
        (
            b'{"index":%d,"text":%b' % (index, quote(choice.content or "")),
            b',"logprobs":%b,"finish_reason":%b' % (choice.logprobs, quote(choice.finish)),
            b',"stop_reason":%b,"token_ids":%b' % (quote(choice.stop_reason), choice.token_ids),
            b',"prompt_logprobs":null,"prompt_token_ids":%b,"routed_experts":null}' % prompt_token_ids,
        )
    )


def delta_json(*, reasoning: str, content: str, tool: bytes = b"", null_reasoning: bool = False) -> bytes:
    """Return the delta of a chat event; ``tool`` is the calls' JSON objects, with a comma between, empty for none.

    With ``null_reasoning`` a content delta names the reasoning that it keeps back.
    """
    parts = []
    if content or tool:
        parts.append(b'"content":%b' % (quote(content) if content else NULL))
    if reasoning:
        parts.append(b'"reasoning":' + quote(reasoning))
    elif content and null_reasoning:
        parts.append(b'"reasoning":null')
    if tool:
        parts.append(b'"tool_calls":[%b]' % tool)
    return b"{" + b",".join(parts) + b"}"


def tool_name_json(call_id: str, name: str) -> bytes:
    """Return the call object that begins a tool call."""
    return b'{"id":%b,"type":"function","index":0,"function":{"name":%b}}' % (quote(call_id), quote(name))


def tool_arguments_json(arguments: str) -> bytes:
    """Return the call object that continues a tool call's arguments."""
    return b'{"index":0,"function":{"arguments":%b}}' % quote(arguments)
