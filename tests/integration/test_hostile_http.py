"""Requests that two servers could read differently, or that are meant to hurt: refused, and no backend hears of them.

What one server takes for the end of a request is the beginning of the next one for another: so nothing that is
ambiguous is passed on, and the connection ends with it.
"""

from __future__ import annotations

import pytest

from tests.fakes.backend import Script, ScriptedBackend, answer
from tests.fakes.client import raw_client
from tests.fakes.worker import backend_view, running_worker

pytestmark = pytest.mark.asyncio

POST = "POST /v1/chat/completions HTTP/1.1\r\n"
JSON = "Host: g\r\nContent-Type: application/json\r\n"
BODY = '{"model":"tiny"}'
SMUGGLED = "POST /v1/completions HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"

REFUSED = {
    "length-and-chunks": f"{POST}{JSON}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{SMUGGLED}",
    "chunks-and-length": f"{POST}{JSON}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n{SMUGGLED}",
    "two-lengths": f"{POST}{JSON}Content-Length: 16\r\nContent-Length: 2\r\n\r\n{BODY}",
    "two-equal-lengths": f"{POST}{JSON}Content-Length: 16\r\nContent-Length: 16\r\n\r\n{BODY}",
    "list-of-lengths": f"{POST}{JSON}Content-Length: 16, 16\r\n\r\n{BODY}",
    "length-with-sign": f"{POST}{JSON}Content-Length: +16\r\n\r\n{BODY}",
    "length-below-zero": f"{POST}{JSON}Content-Length: -1\r\n\r\n{BODY}",
    "length-in-hex": f"{POST}{JSON}Content-Length: 0x10\r\n\r\n{BODY}",
    "length-without-end": f"{POST}{JSON}Content-Length: {'9' * 40}\r\n\r\n{BODY}",
    "unknown-coding": f"{POST}{JSON}Transfer-Encoding: xchunked\r\n\r\n{BODY}",
    "two-codings": f"{POST}{JSON}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "coding-twice": f"{POST}{JSON}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "coding-with-blank-in-name": f"{POST}{JSON}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "chunks-with-http-1.0": f"{POST.replace('1.1', '1.0')}{JSON}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "bad-chunk-size": f"{POST}{JSON}Transfer-Encoding: chunked\r\n\r\nzz\r\n{BODY}\r\n0\r\n\r\n",
    "chunk-size-with-sign": f"{POST}{JSON}Transfer-Encoding: chunked\r\n\r\n+10\r\n{BODY}\r\n0\r\n\r\n",
    "chunk-longer-than-said": f"{POST}{JSON}Transfer-Encoding: chunked\r\n\r\n5\r\n{BODY}\r\n0\r\n\r\n",
    "folded-header": f"{POST}{JSON}X-A: b\r\n c: d\r\nContent-Length: 16\r\n\r\n{BODY}",
    "line-feeds-only": f"{POST}{JSON}Content-Length: 16\r\n\r\n{BODY}".replace("\r\n", "\n"),
    "return-inside-a-value": f"{POST}{JSON}X-A: b\rContent-Length: 16\r\n\r\n{BODY}",
    "nul-inside-a-value": f"{POST}{JSON}X-A: b\0c\r\nContent-Length: 16\r\n\r\n{BODY}",
    "header-without-name": f"{POST}{JSON}: b\r\nContent-Length: 16\r\n\r\n{BODY}",
    "header-without-colon": f"{POST}{JSON}X-A\r\nContent-Length: 16\r\n\r\n{BODY}",
    "no-host": f"{POST}Content-Type: application/json\r\nContent-Length: 16\r\n\r\n{BODY}",
    "two-hosts": f"{POST}{JSON}Host: other\r\nContent-Length: 16\r\n\r\n{BODY}",
    "host-with-a-path": f"{POST}{JSON.replace('Host: g', 'Host: g/../x y')}Content-Length: 16\r\n\r\n{BODY}",
    "whole-url": f"POST http://g/v1/chat/completions HTTP/1.1\r\n{JSON}Content-Length: 16\r\n\r\n{BODY}",
    "tunnel": "CONNECT 10.0.0.1:443 HTTP/1.1\r\nHost: g\r\n\r\n",
    "http-2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "http-1.2": "GET /health HTTP/1.2\r\nHost: g\r\n\r\n",
    "tls": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "many-headers": f"{POST}{JSON}{''.join(f'X-{n}: 1{chr(13)}{chr(10)}' for n in range(2000))}\r\n",
    "long-header": f"{POST}{JSON}X-A: {'a' * 100_000}\r\n\r\n",
    "long-target": f"POST /{'a' * 100_000} HTTP/1.1\r\n{JSON}Content-Length: 16\r\n\r\n{BODY}",
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_no_plain_request_is_refused_and_reaches_nobody(name: str) -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        async with raw_client(worker.port) as client:
            client.writer.write(REFUSED[name].encode("latin-1"))
            seen = await client.answer()
            assert seen.status in {400, 404}, seen
            assert seen.error["message"]
            assert seen.headers["x-gateway-error"] == "1"
        async with raw_client(worker.port) as another:
            await another.send(b"GET /health HTTP/1.1\r\nHost: g\r\n\r\n")
            assert (await another.answer()).status == 200
        assert backend.exchanges == []
        assert backend.unscripted == []
        assert worker.desk.holding == 0


@pytest.mark.parametrize("name", [name for name in REFUSED if name not in {"whole-url", "tunnel"}])
async def test_nothing_is_read_from_that_connection_any_more(name: str) -> None:
    async with running_worker() as worker:
        worker.serve([])
        async with raw_client(worker.port) as client:
            client.writer.write(REFUSED[name].encode("latin-1"))
            await client.answer()
            assert await client.at_end()


async def test_an_upgrade_is_not_taken_up_and_odd_names_stay_here() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        backend.add(Script((answer(b"{}"),)))
        headers = {
            "Connection": "Upgrade, HTTP2-Settings",
            "Upgrade": "h2c",
            "HTTP2-Settings": "AAMAAABkAAQAAP__",
            "content_length": "5",
            "X_Forwarded_For": "1.2.3.4",
        }
        async with raw_client(worker.port) as client:
            await client.post({"model": "tiny"}, headers=headers)
            assert (await client.answer()).status == 200
        sent = (await backend.exchange(0)).request.headers
        assert set(sent) == {"host", "content-type", "content-length", "x-request-id"}
