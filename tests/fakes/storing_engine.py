"""An engine that keeps responses as vLLM 0.32 does with its store on, on top of the scripted backend.

The id of a response is the request's ``request_id`` where there is one.  A background response is ``queued`` until the
test says what has become of it.  A response goes on from another one only if this engine has that one.
"""

from __future__ import annotations

import json
from typing import Any

from tests.fakes.backend import End, Request, Script, ScriptedBackend, answer
from tests.fakes.engine_events import typed

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
PROMPT_TOKENS = 3


class StoringEngine:
    """One engine.  ``takes_ids``: it uses the request's id for the response, as vLLM does."""

    def __init__(self, *, takes_ids: bool = True) -> None:
        self.takes_ids = takes_ids
        self.silent = False  # it makes what it is asked for, and does not answer
        self.kept: dict[str, dict[str, Any]] = {}
        self.bodies: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.backend = ScriptedBackend(answerer=self._answer)

    def finish(self, thing: str, *, status: str = "completed", tokens: int | None = 5) -> None:
        """A background response has ended so; ``tokens`` None: without usage."""
        usage = None if tokens is None else _usage(tokens)
        self.kept[thing] |= {"status": status, "usage": usage}

    def _answer(self, request: Request) -> Script:
        self.asked.append(f"{request.method} {request.target}")
        if request.method == "POST" and request.target == "/v1/responses":
            return self._make(json.loads(request.body))
        thing, _, act = request.target.partition("?")[0].removeprefix("/v1/responses/").partition("/")
        found = self.kept.get(thing)
        if found is None:
            return Script((_unknown(thing),))
        if act == "cancel" and found["status"] in {"queued", "in_progress"}:
            found["status"] = "cancelled"
        return Script((answer(json.dumps(found).encode()),))

    def _make(self, body: dict[str, Any]) -> Script:
        self.bodies.append(body)
        before = body.get("previous_response_id")
        if before is not None and before not in self.kept:
            return Script((_unknown(before),))
        thing = (self.takes_ids and body.get("request_id")) or f"resp_engine{len(self.bodies)}"
        background = bool(body.get("background"))
        made: dict[str, Any] = {
            "id": thing,
            "object": "response",
            "status": "queued" if background else "completed",
            "usage": None if background else _usage(5),
            "background": background,
            "previous_response_id": before,
        }
        if body.get("store", True):
            self.kept[thing] = made
        if self.silent:
            return Script((), End.HANG)
        if not body.get("stream"):
            return Script((answer(json.dumps(made).encode()),))
        events = [typed("response.created", response={"id": thing, "status": "in_progress"})]
        events.append(typed("response.output_text.delta", delta="hello"))
        if background:
            return Script((HEAD, *map(_chunk, events)), End.HANG)
        events.append(typed("response.completed", response=made))
        return Script((HEAD, *map(_chunk, events), b"0\r\n\r\n"))


def _usage(tokens: int) -> dict[str, int]:
    return {"input_tokens": PROMPT_TOKENS, "output_tokens": tokens, "total_tokens": PROMPT_TOKENS + tokens}


def _chunk(event: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(event), event)


def _unknown(thing: str) -> bytes:
    error = {"message": f"Response with id '{thing}' not found.", "type": "invalid_request_error", "code": 404}
    return answer(json.dumps({"error": error}).encode(), status=404)
