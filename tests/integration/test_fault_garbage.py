"""A backend that sends what is no answer, or an answer with garbage in it, on every API and cut anywhere.

The expected ends: something else than what was asked for is a 502 and nobody else is asked; garbage between the events
of a stream that the engine ends itself passes byte for byte, is counted where it is an event that cannot be read, and
costs the client nothing; garbage in a stream that then breaks still ends in an error event that can be read.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from gateway.core.stream.delivery.mode import Delivery
from gateway.core.stream.http1 import TERMINATOR
from gateway.core.stream.summary import Ending, Outcome
from tests.fakes.apis import APIS, CHAT, HEAD, Api, chunk
from tests.fakes.backend import End, Script, answer, cut
from tests.fakes.client import Answer, raw_client
from tests.fakes.delivered import read_chat
from tests.fakes.engine_events import DONE, chat, role
from tests.fakes.fault_stand import Stand, stand

pytestmark = pytest.mark.asyncio

all_apis = pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
stream_or_not = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])

UNREADABLE: Final = {
    "bad JSON": b"data: {not json\n\n",
    "half of a JSON": b'data: {"choices":[{"index":0\n\n',
    "JSON of another kind": b"data: [1,2]\n\n",
    "a number": b"data: 7\n\n",
    "NUL": b"data: \x00\x00\n\n",
    "no UTF-8": b'data: {"x":"\xff\xfe\n\n',
}
"""Events with data that is none of the API's: each is counted once."""

MEANINGLESS: Final = {
    "no data": b"hello there\n\n",
    "NUL in the name of a field": b"da\x00ta: x\n\n",
    "a comment": b": hi\n\n",
    "comments": b": hi\n: there\n\n:\n\n",
    "id and retry": b"id: 7\nretry: 1\n\n",
    "a name alone": b"event: x\n\n",
    "blank lines": b"\n\n\n\n",
    "a BOM in the middle": b"\xef\xbb\xbf\n\n",
}
"""Lines that a reader of Server-Sent Events skips."""

GARBAGE: Final = UNREADABLE | MEANINGLESS


async def asked(at: Stand, api: Api, *, stream: bool = True, headers: dict[str, str] | None = None) -> Answer:
    async with raw_client(at.worker.port) as client:
        await client.post(api.request(stream=stream), path=api.path, headers=headers)
        return await client.answer()


def script(body: bytes, cuts: str, *, end: bytes = TERMINATOR) -> Script:
    """A stream in one HTTP chunk in one read, in one chunk but byte by byte, or in a chunk for each byte."""
    match cuts:
        case "in one read":
            return Script((HEAD + chunk(body) + end,))
        case "byte by byte":
            return Script((HEAD, *cut(chunk(body), range(len(body) + 20)), end))
        case _:
            return Script((HEAD, *(chunk(body[at : at + 1]) for at in range(len(body))), end))


all_cuts = pytest.mark.parametrize("cuts", ["in one read", "byte by byte", "a chunk for each byte"])


# --- no answer at all ---


@all_apis
@stream_or_not
@pytest.mark.parametrize(
    "reply",
    [
        answer(b"<html>login</html>", content_type="text/html"),
        answer(b"<html>login</html>", content_type="text/html; charset=utf-8", headers="connection: close\r\n"),
        answer(b"OK", content_type="text/plain"),
        answer(b'{"location":"elsewhere"}', content_type="application/xml"),
        b"HTTP/1.1 200 OK\r\n\r\nno type",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        answer(b"", status=302, headers="location: http://10.0.0.1/\r\n"),
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000,
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    ],
    ids=[
        *("html", "html and close", "text", "xml", "no type", "no content", "redirect", "ssh", "tls"),
        *("two lengths", "gzip", "endless head", "another protocol"),
    ],
)
async def test_something_else_than_an_answer_is_a_502_and_nobody_else_is_asked(
    api: Api, reply: bytes, *, stream: bool
) -> None:
    async with stand() as at:
        at.plays(Script((reply,), End.HANG))
        seen = await asked(at, api, stream=stream)
        assert (seen.status, api.refused(seen)) == (502, api.names("backend_garbled", status=502))
        assert "location" not in seen.headers
        await at.cancelled(await at.accepted())
        record = await at.ended(Outcome.UPSTREAM_ERROR)
        assert (record.ending, record.attempts) in {(Ending.NOT_SSE, 1), (Ending.BAD_FRAMING, 1)}
        assert [it.code for it in at.worker.failures] == ["backend_garbled"]


@all_apis
async def test_json_for_a_stream_is_a_502(api: Api) -> None:
    async with stand() as at:
        at.plays(Script((answer(api.whole),), End.HANG))
        assert (await asked(at, api)).status == 502
        assert (await at.ended(Outcome.UPSTREAM_ERROR)).ending is Ending.NOT_SSE


@all_apis
@pytest.mark.parametrize("body", [b"{", b"\x00", b"[]", b"", b'{"x":"\xff"}', b"null"])
async def test_an_answer_in_one_piece_that_is_no_answer_is_passed_on_and_recorded_as_a_failure(
    api: Api, body: bytes
) -> None:
    """Its framing is whole, so it is what the engine said: never judged ok, never retried."""
    async with stand() as at:
        at.plays(Script((answer(body),)))
        seen = await asked(at, api, stream=False)
        assert (seen.status, seen.body) == (200, body)
        await at.ended(Outcome.UPSTREAM_ERROR)


# --- garbage between events ---


@all_apis
@all_cuts
@pytest.mark.parametrize("what", GARBAGE)
async def test_garbage_between_events_passes_as_it_is_and_costs_nothing_else(api: Api, what: str, cuts: str) -> None:
    body = b"".join((*api.begun, GARBAGE[what], *api.ending))
    async with stand() as at:
        at.plays(script(body, cuts))
        seen = await asked(at, api)
        assert (seen.body, seen.whole) == (body, True)
        record = await at.ended(Outcome.OK)
        assert record.summary is not None
        assert record.summary.bad_events == (what in UNREADABLE)
        assert record.summary.completion_tokens == 2


@all_apis
@all_cuts
@pytest.mark.parametrize("ends", [b"\r\n", b"\r"], ids=["CRLF", "CR"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"], ids=["", "BOM"])
async def test_other_line_ends_and_a_bom_are_read_and_pass_as_they_are(
    api: Api, ends: bytes, bom: bytes, cuts: str
) -> None:
    body = bom + api.stream.replace(b"\n", ends)
    async with stand() as at:
        at.plays(script(body, cuts))
        seen = await asked(at, api)
        assert (seen.body, seen.whole) == (body, True)
        record = await at.ended(Outcome.OK)
        assert record.summary is not None
        assert (record.summary.bad_events, record.summary.completion_tokens) == (0, 2)


@all_apis
@all_cuts
async def test_line_ends_may_be_mixed_within_an_answer(api: Api, cuts: str) -> None:
    events = (*api.begun, *api.ending)
    body = b"".join(it.replace(b"\n", (b"\r\n", b"\r", b"\n")[at % 3]) for at, it in enumerate(events))
    async with stand() as at:
        at.plays(script(body, cuts))
        assert (await asked(at, api)).body == body
        await at.ended(Outcome.OK)


@all_apis
@all_cuts
async def test_letters_may_be_cut_in_two_and_broken_ones_pass(api: Api, cuts: str) -> None:
    split = api.hello.replace(b"hello", "ü€𝄞".encode())
    broken = api.hello.replace(b"hello", b"a\xff\xc3b")
    body = b"".join((*api.opening, split, broken, *api.ending))
    async with stand() as at:
        at.plays(script(body, cuts))
        assert (await asked(at, api)).body == body
        record = await at.ended(Outcome.OK)
        assert record.summary is not None
        assert record.summary.bad_events == 0, "a client would replace what it cannot read, and so does the count"


@all_apis
@pytest.mark.parametrize("what", GARBAGE)
async def test_garbage_and_then_a_death_still_ends_in_an_error_event(api: Api, what: str) -> None:
    begun = b"".join((*api.begun, GARBAGE[what]))
    async with stand() as at:
        at.plays(Script((HEAD, chunk(begun), chunk(b"and half of a line")), End.CLOSE))
        seen = await asked(at, api)
        assert seen.body.startswith(begun)
        assert api.told(seen.body.removeprefix(begun)) == api.names("backend_died", status=502)
        await at.ended(Outcome.UPSTREAM_ERROR)


@all_apis
async def test_nothing_but_garbage_is_no_answer(api: Api) -> None:
    garbage = b"".join(GARBAGE.values())
    async with stand() as at:
        at.plays(script(garbage, "in one read"))
        seen = await asked(at, api)
        assert seen.body.startswith(garbage)
        assert api.told(seen.body.removeprefix(garbage)) == api.names("backend_died", status=502)
        await at.ended(Outcome.UPSTREAM_ERROR)


# --- and where events are changed on their way ---

MODES = [mode for mode in Delivery if mode is not Delivery.PASS]


@pytest.mark.parametrize("cuts", ["in one read", "a chunk for each byte"])
@pytest.mark.parametrize("mode", MODES)
async def test_garbage_comes_through_every_delivery_and_the_answer_with_it(mode: Delivery, cuts: str) -> None:
    before = (role(), chat(reasoning="hm"), chat(reasoning=" so"))
    after = (chat(content="hello"), chat(finish="stop"), DONE)
    headers = {"X-Gateway-Reasoning": mode.value}
    async with stand(1) as at:
        at.plays(script(b"".join((*before, *after)), cuts))
        clean = await asked(at, CHAT, headers=headers)
        for what, garbage in GARBAGE.items():
            at.plays(script(b"".join((*before, garbage, *after)), cuts))
            seen = await asked(at, CHAT, headers=headers)
            assert seen.body.replace(garbage, b"", 1) == clean.body, what
            # Blank lines belong to the event before them, and go with it.
            assert what == "blank lines" or garbage in seen.body, what
            if what not in UNREADABLE:
                assert read_chat(seen.body).done == 1, what
        await at.worker.record(len(GARBAGE))
        assert {it.outcome for it in at.worker.records} == {Outcome.OK}


@pytest.mark.parametrize("metrics", ["usage", "event"])
@pytest.mark.parametrize("what", GARBAGE)
async def test_garbage_comes_through_where_numbers_are_added(metrics: str, what: str) -> None:
    body = b"".join((*CHAT.begun, GARBAGE[what], *CHAT.ending))
    async with stand() as at:
        at.plays(script(body, "a chunk for each byte"))
        seen = await asked(at, CHAT, headers={"X-Gateway-Metrics": metrics})
        assert GARBAGE[what] in seen.body
        reports: list[Any] = [
            value.get("pacekeeper") or value["usage"]["pacekeeper"]
            for value in (json.loads(it[6:]) for it in seen.events if b"pacekeeper" in it)
        ]
        assert [it["completion_tokens"] for it in reports] == [2]
        await at.ended(Outcome.OK)
