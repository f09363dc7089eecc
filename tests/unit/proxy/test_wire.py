"""The canary: what the gateway relies on in aiohttp's private parts, and that the fast C parser is in use."""

from __future__ import annotations

import asyncio
import inspect

import pytest
from aiohttp import web, web_protocol
from aiohttp.base_protocol import BaseProtocol
from aiohttp.web_protocol import RequestHandler

from gateway.proxy.limits import WireLimits
from gateway.proxy.wire import Answered, ClientWire, WireServer, has_fast_parser


async def _never(_request: web.BaseRequest, _wire: ClientWire) -> Answered:
    raise AssertionError("no request was sent")


@pytest.mark.asyncio
async def test_a_new_connection_has_what_the_wire_uses() -> None:
    wire = WireServer(_never, limits=WireLimits(), buffer_bytes=lambda: 1000)()
    assert type(wire) is ClientWire
    for name in ("_waiter", "_messages", "_loop", "_current_request", "_force_close", "_paused", "transport"):
        assert hasattr(wire, name), f"aiohttp no longer has RequestHandler.{name}"
    assert asyncio.iscoroutinefunction(BaseProtocol._drain_helper)


def test_a_lost_connection_cancels_the_handler() -> None:
    assert "self._task_handler.cancel()" in inspect.getsource(RequestHandler.connection_lost)
    assert "handler_cancellation" in inspect.signature(web.Server.__init__).parameters


def test_an_answer_that_is_written_already_satisfies_finish_response() -> None:
    source = inspect.getsource(RequestHandler.finish_response)
    assert "resp.prepare" in source
    assert "resp.write_eof" in source
    assert "resp.keep_alive" in inspect.getsource(RequestHandler.start)
    for name in ("prepare", "write_eof", "keep_alive"):
        assert hasattr(Answered(keep_alive=True), name)


def test_a_bad_request_is_queued_as_an_error_message_and_a_payload_can_be_told() -> None:
    assert hasattr(web_protocol, "_ErrInfo")
    assert "_ErrInfo" in RequestHandler.data_received.__code__.co_names
    assert "set_exception(self._payload" in inspect.getsource(web.BaseRequest._cancel)


def test_the_raw_target_is_where_it_is_read() -> None:
    assert "_message" in web.BaseRequest.__init__.__code__.co_names


def test_the_c_parser_is_in_use() -> None:
    assert has_fast_parser()
