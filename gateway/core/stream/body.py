"""Reads an answer that came as one JSON body: counts, reasons to finish, the engine's metrics.

Settle station, for requests that are no stream.  There are no instants in a body, so there are no rates.  A body
that cannot be read is an answer that the engine did not finish.
"""

from __future__ import annotations

from typing import Final, assert_never

from msgspec import Raw, Struct, json

from gateway.core.stream.answer import Answer
from gateway.core.stream.chat import Delta, tool_bytes
from gateway.core.stream.chunk import ABSENT, UNREADABLE, is_given, utf8_bytes
from gateway.core.stream.counts import TextLengths
from gateway.core.stream.delivery.mode import ThinkTags
from gateway.core.stream.report import report_body
from gateway.core.stream.summary import Dialect, Flag, RequestShape, StreamSummary
from gateway.core.stream.tagged import tagged_bytes


class _Choice(Struct, gc=False):
    index: int = 0
    message: Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class _Completion(Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: Raw = ABSENT
    metrics: Raw = ABSENT
    error: Raw = ABSENT


class _Part(Struct, gc=False):
    """A content part, output item or block: the union of what Responses and Messages put into their lists."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    input: Raw = ABSENT
    arguments: str | None = None
    content: list[_Part] | None = None
    summary: list[_Part] | None = None


class _Response(Struct, gc=False):
    status: str | None = None
    output: list[_Part] | None = None
    usage: Raw = ABSENT
    metrics: Raw = ABSENT
    error: Raw = ABSENT


class _Message(Struct, gc=False):
    content: list[_Part] | None = None
    stop_reason: str | None = None
    usage: Raw = ABSENT
    error: Raw = ABSENT


_COMPLETION: Final = json.Decoder(_Completion)
_RESPONSE: Final = json.Decoder(_Response)
_MESSAGE: Final = json.Decoder(_Message)


def summarise_body(
    dialect: Dialect, body: bytes, shape: RequestShape, *, tags: ThinkTags | None = None
) -> StreamSummary:
    """Return the summary of a whole answer; never raises: an unreadable body gives an unfinished answer.

    ``tags``: reasoning stands in the text of chat and completions, between tags.
    """
    answer = Answer()
    try:
        match dialect:
            case Dialect.CHAT | Dialect.COMPLETIONS:
                lengths = _read_completion(_COMPLETION.decode(body), answer, tags)
            case Dialect.RESPONSES:
                lengths = _read_response(_RESPONSE.decode(body), answer)
            case Dialect.MESSAGES:
                lengths = _read_message(_MESSAGE.decode(body), answer)
            case _:
                assert_never(dialect)
    except UNREADABLE:
        return StreamSummary(bad_events=1, flags=(Flag.BAD_EVENTS,))
    return report_body(answer, shape, lengths=lengths, finished=answer.ended_well(shape.n))


def _read_completion(body: _Completion, answer: Answer, tags: ThinkTags | None) -> TextLengths:
    reasoning = content = tool = 0
    for choice in body.choices or ():
        answer.begin(choice.index)
        if choice.finish_reason:
            answer.finish(choice.index, choice.finish_reason)
        message = choice.message
        text = choice.text or (message.content if message is not None else None) or ""
        thought, said = (0, utf8_bytes(text)) if tags is None else tagged_bytes(text, tags)
        reasoning += thought
        content += said
        if message is not None:
            reasoning += utf8_bytes(message.reasoning or message.reasoning_content or "")
            if message.tool_calls:
                answer.tool_seen = True
                tool += tool_bytes(message.tool_calls)
    answer.take(usage=body.usage, metrics=body.metrics, error=body.error, whole=True)
    return TextLengths(reasoning=reasoning, content=content, tool=tool)


def _read_response(body: _Response, answer: Answer) -> TextLengths:
    answer.begin(0)
    reasoning = content = tool = 0
    for item in body.output or ():
        size = sum(utf8_bytes(part.text or "") for part in (*(item.content or ()), *(item.summary or ())))
        if item.type == "reasoning":
            reasoning += size
        elif item.type == "message":
            content += size
        else:
            answer.tool_seen = True
            tool += utf8_bytes(item.arguments or "")
    if body.status:
        answer.finish(0, body.status)
    answer.take(usage=body.usage, metrics=body.metrics, error=body.error, whole=True)
    return TextLengths(reasoning=reasoning, content=content, tool=tool)


def _read_message(body: _Message, answer: Answer) -> TextLengths:
    answer.begin(0)
    reasoning = content = tool = 0
    for block in body.content or ():
        reasoning += utf8_bytes(block.thinking or "")
        content += utf8_bytes(block.text or "")
        if is_given(block.input):
            answer.tool_seen = True
            tool += len(block.input)
    if body.stop_reason:
        answer.finish(0, body.stop_reason)
    answer.take(usage=body.usage, metrics=ABSENT, error=body.error, whole=True)
    return TextLengths(reasoning=reasoning, content=content, tool=tool)
