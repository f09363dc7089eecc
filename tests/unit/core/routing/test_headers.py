"""Which headers cross the gateway."""

from __future__ import annotations

import pytest

from gateway.core.routing.headers import client_request_id, downstream_headers, upstream_headers


def test_only_named_headers_go_upstream() -> None:
    lines = upstream_headers(
        [
            ("Accept", "text/event-stream"),
            ("AUTHORIZATION", "Bearer x"),
            ("Cookie", "a=b"),
            ("X-Vllm-Priority", "1"),
            ("X-data-parallel-rank", "1"),
            ("X-Forwarded-For", "1.2.3.4"),
            ("Content-Length", "5"),
            ("TraceParent", "00-1"),
            ("X-Session-ID", "é"),
        ]
    )
    assert lines == b"accept: text/event-stream\r\ntraceparent: 00-1\r\nx-session-id: \xc3\xa9\r\n"


def test_hop_by_hop_headers_and_our_own_stay_behind_on_the_way_down() -> None:
    lines = downstream_headers(
        [
            (b"content-type", b"application/json"),
            (b"transfer-encoding", b"chunked"),
            (b"connection", b"close"),
            (b"content-length", b"3"),
            (b"x-request-id", b"engine"),
            (b"x-gateway-error", b"1"),
            (b"set-cookie", b"a=b"),
            (b"x-other", b"1"),
        ]
    )
    assert lines == b"content-type: application/json\r\nx-other: 1\r\n"


@pytest.mark.parametrize("value", ["a", "chatcmpl-1.2_3:4", "x" * 128])
def test_a_request_id_fit_for_logs_is_kept(value: str) -> None:
    assert client_request_id(value) == value


@pytest.mark.parametrize("value", [None, "", " ", "a b", "a\n", "a/b", "x" * 129, "é", '"'])
def test_any_other_is_not(value: str | None) -> None:
    assert client_request_id(value) is None
