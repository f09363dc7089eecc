"""The canary: what the gateway relies on in aiohttp's private parts, and that the fast C parser is in use."""

from __future__ import annotations

import inspect

import aiohttp.http_parser
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from gateway.proxy.wire import Answered, ClientWire, WireServer


def test_the_protocol_has_the_attributes_that_the_wire_uses() -> None:
    source = inspect.getsource(inspect.getmodule(RequestHandler) or RequestHandler)
    for name in ("_waiter", "_current_request", "_task_handler", "_request_handler", "_force_close"):
        assert f'"{name}"' in source, f"aiohttp no longer has RequestHandler.{name}"
    assert "_paused" in inspect.getsource(RequestHandler.__mro__[1])


def test_a_lost_connection_cancels_the_handler_and_closing_only_marks() -> None:
    assert "self._task_handler.cancel()" in inspect.getsource(RequestHandler.connection_lost)
    assert "handler_cancellation" in inspect.signature(web.Server.__init__).parameters


def test_an_answer_that_is_written_already_satisfies_finish_response() -> None:
    source = inspect.getsource(RequestHandler.finish_response)
    assert "resp.prepare" in source
    assert "resp.write_eof" in source
    assert "resp.keep_alive" in inspect.getsource(RequestHandler.start)
    for name in ("prepare", "write_eof", "keep_alive"):
        assert hasattr(Answered(keep_alive=True), name)


def test_the_c_parser_is_in_use() -> None:
    assert aiohttp.http_parser.HttpRequestParser is not aiohttp.http_parser.HttpRequestParserPy


def test_the_server_makes_our_protocol() -> None:
    assert ClientWire in inspect.signature(WireServer.__call__).return_annotation.__class__.__mro__ or (
        inspect.signature(WireServer.__call__).return_annotation == "ClientWire"
    )
    assert issubclass(ClientWire, RequestHandler)


def test_the_raw_target_is_where_admission_reads_it() -> None:
    assert "_message" in inspect.getsource(web.BaseRequest.__init__)
    assert "path" in aiohttp.http_parser.RawRequestMessage.__init__.__doc__ or hasattr(
        aiohttp.http_parser.RawRequestMessage, "path"
    )
