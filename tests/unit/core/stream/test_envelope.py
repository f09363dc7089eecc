"""The gateway's own errors, in the shape that each kind of client parses."""

from __future__ import annotations

import json

import pytest

from gateway.core.stream.envelope import error_body, error_event, relayed_error_event
from gateway.core.stream.summary import Dialect
from gateway.errors import BackendDied, BackendError, BadRequest


@pytest.mark.parametrize("dialect", [None, Dialect.CHAT, Dialect.COMPLETIONS, Dialect.RESPONSES])
def test_openai_s_envelope(dialect: Dialect | None) -> None:
    assert json.loads(error_body(BadRequest("no", param="n"), dialect)) == {
        "error": {"message": "no", "type": "invalid_request_error", "param": "n", "code": "bad_request"}
    }


def test_anthropic_s_envelope() -> None:
    assert json.loads(error_body(BackendDied("gone"), Dialect.MESSAGES)) == {
        "type": "error",
        "error": {"type": "api_error", "message": "gone"},
    }


@pytest.mark.parametrize("dialect", [Dialect.CHAT, Dialect.COMPLETIONS])
def test_an_error_event_is_followed_by_the_end_marker(dialect: Dialect) -> None:
    event = error_event(BackendDied("gone"), dialect)
    assert event.startswith(b'data: {"error":{"message":"gone"')
    assert event.endswith(b"}\n\ndata: [DONE]\n\n")


@pytest.mark.parametrize("dialect", [Dialect.RESPONSES, Dialect.MESSAGES])
def test_named_events_have_no_end_marker(dialect: Dialect) -> None:
    event = error_event(BackendDied("gone"), dialect)
    assert event.startswith(b"event: error\ndata: {")
    assert b"[DONE]" not in event


ENGINE_SAYS = b'{"error": {"message": "no\\nsuch",\n "type": "BadRequestError", "param": null, "code": 400}}'


def test_an_engine_s_error_body_becomes_an_event_with_its_own_words() -> None:
    event = relayed_error_event(ENGINE_SAYS, status=400, dialect=Dialect.CHAT)
    first, done, rest = event.split(b"\n\n")
    assert json.loads(first.removeprefix(b"data: ")) == json.loads(ENGINE_SAYS)
    assert (done, rest) == (b"data: [DONE]", b"")


def test_of_other_apis_it_has_their_shape() -> None:
    messages = relayed_error_event(ENGINE_SAYS, status=400, dialect=Dialect.MESSAGES)
    assert messages == (
        b'event: error\ndata: {"error":{"type":"BadRequestError","message":"no\\nsuch"},"type":"error"}\n\n'
    )
    name, data = relayed_error_event(ENGINE_SAYS, status=400, dialect=Dialect.RESPONSES).rstrip().split(b"\n")
    assert name == b"event: error"
    told = json.loads(data.removeprefix(b"data: "))
    assert (told["type"], told["code"], told["message"], told["error"]["code"]) == ("error", "400", "no\nsuch", "400")


@pytest.mark.parametrize(
    "body", [b"", b"Internal Server Error", b'{"detail": "x"}', b'{"error": "x"}', b"\xff{}", b"[" * 9999]
)
def test_one_that_cannot_be_read_is_told_by_its_status(body: bytes) -> None:
    event = relayed_error_event(body, status=500, dialect=Dialect.CHAT)
    assert event == error_event(BackendError("the backend answered with status 500"), Dialect.CHAT)
