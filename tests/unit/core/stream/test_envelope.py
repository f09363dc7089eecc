"""The gateway's own errors, in the shape that each kind of client parses."""

from __future__ import annotations

import json

import pytest

from gateway.core.stream.envelope import error_body, error_event
from gateway.core.stream.summary import Dialect
from gateway.errors import BackendDied, BadRequest


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
