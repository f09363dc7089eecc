"""The client of the admin API: what it sends, and what each failure is called."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.cli.client import AdminClient, decode
from gateway.cli.exits import CommandFailed, Exit
from gateway.cli.target import Target, Token
from gateway.ports import StatusReport
from tests.fakes.admin_server import TOKEN, FakeGateway, failure, serving


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway(time.time())


@pytest.fixture
def url(gateway: FakeGateway) -> Iterator[str]:
    with serving(gateway) as url:
        yield url


def client(url: str, token: str = TOKEN) -> AdminClient:
    return AdminClient(Target(url=url, token=Token(value=token)))


def failed(url: str, token: str = TOKEN) -> CommandFailed:
    with pytest.raises(CommandFailed) as caught:
        client(url, token).get("status")
    return caught.value


def test_an_answer_is_its_body(url: str, gateway: FakeGateway) -> None:
    assert decode(client(url).get("status"), StatusReport) == gateway.status
    path, query, headers = gateway.seen[0]
    assert (path, query) == ("/admin/v1/status", {})
    assert headers["Authorization"] == f"Bearer {TOKEN}"
    assert headers["Host"] == url.removeprefix("http://")


def test_a_unix_socket_is_asked_as_localhost(gateway: FakeGateway, tmp_path: Path) -> None:
    with serving(gateway, socket_path=tmp_path / "s") as url:
        client(url).get("status")
    assert gateway.seen[0][2]["Host"] == "localhost"


def test_names_and_filters_are_quoted_and_empty_ones_left_out(url: str, gateway: FakeGateway) -> None:
    with pytest.raises(CommandFailed):
        client(url).get("backends", "a/b c?d", query={"model": "x&y", "outcome": "", "limit": 3})
    assert gateway.seen[0][:2] == ("/admin/v1/backends/a%2Fb%20c%3Fd", {"model": "x&y", "limit": "3"})


def test_a_wrong_token_is_not_authorised(url: str) -> None:
    error = failed(url, "wrong")
    assert (error.exit_code, error.code) == (Exit.NOT_AUTHORISED, "not_authenticated")
    assert "--token-file" in error.hint


@pytest.mark.parametrize(
    "status, exit_code",
    [(403, Exit.NOT_AUTHORISED), (404, Exit.NOT_FOUND), (429, Exit.FAULT), (503, Exit.FAULT), (500, Exit.FAULT)],
)
def test_the_gateways_own_words_are_kept(status: int, exit_code: Exit, url: str, gateway: FakeGateway) -> None:
    gateway.raw = failure(status, "some_code", "some words")
    error = failed(url)
    assert (error.message, error.code, error.exit_code) == ("some words", "some_code", exit_code)


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"error": "x"}', b"[]", b""])
def test_something_else_that_answers_is_no_gateway(body: bytes, url: str, gateway: FakeGateway) -> None:
    gateway.raw = (404, body)
    error = failed(url)
    assert (error.exit_code, error.code) == (Exit.UNREACHABLE, "not_a_gateway")
    assert "status 404" in error.message


def test_nobody_there_is_unreachable_and_comes_before_a_missing_token(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(CommandFailed) as caught:
        AdminClient(Target(url=url, token=Token(path=tmp_path / "gone"))).get("status")
    assert caught.value.message == f"no gateway answers at {url}: connection refused"
    assert caught.value.exit_code is Exit.UNREACHABLE
    assert "pacekeeper serve" in caught.value.hint


def test_a_socket_file_that_is_gone_is_unreachable(tmp_path: Path) -> None:
    assert failed(f"unix:{tmp_path}/gone").message.endswith("no such file or directory")


def test_what_speaks_no_http_is_unreachable(tmp_path: Path) -> None:
    import threading

    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(65_536)
                peer.sendall(b"SSH-2.0-x\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        error = failed(f"http://127.0.0.1:{server.getsockname()[1]}")
        thread.join()
    assert error.message.endswith("what answers there speaks another protocol")


def test_who_says_nothing_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.cli.client.TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:
        error = failed(f"http://127.0.0.1:{server.getsockname()[1]}")
    assert error.message.endswith("no answer within 0.05 s")
    assert "control process" in error.hint


def test_plain_http_where_https_is_asked_for_is_unreachable(url: str) -> None:
    assert "another protocol" in failed(url.replace("http:", "https:")).message


def test_an_answer_of_another_release_is_said_so() -> None:
    with pytest.raises(CommandFailed, match="is not understood") as caught:
        decode(b'{"summary": 3}', StatusReport)
    assert caught.value.exit_code is Exit.FAULT


def test_fields_that_are_not_known_yet_do_not_matter(gateway: FakeGateway) -> None:
    import msgspec

    body = msgspec.json.encode(msgspec.to_builtins(gateway.status) | {"new": 1})
    assert decode(body, StatusReport) == gateway.status
