"""Addresses: what is taken, in which form it comes out, and what the refusals say."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.core.address import MAX_SOCKET_PATH_BYTES
from gateway.settings.addresses import parse_host_name, parse_listen, parse_url

SECRET = "hunter2"


@pytest.mark.parametrize(
    "given, normal, private",
    [
        ("127.0.0.1:8080", "127.0.0.1:8080", True),
        ("127.8.8.8:1", "127.8.8.8:1", True),
        ("localhost:8080", "127.0.0.1:8080", True),
        ("[::1]:65535", "[::1]:65535", True),
        ("[0:0::1]:80", "[::1]:80", True),
        ("0.0.0.0:8080", "0.0.0.0:8080", False),
        ("[::]:8080", "[::]:8080", False),
        ("10.0.0.1:8080", "10.0.0.1:8080", False),
        ("unix:/run/x.sock", "unix:/run/x.sock", True),
        ("unix:///run/x.sock", "unix:/run/x.sock", True),
    ],
)
def test_a_listen_address_has_one_normal_form(given: str, normal: str, private: bool) -> None:
    address = parse_listen(given)
    assert str(address) == normal
    assert address.is_private is private
    assert parse_listen(normal) == address


@pytest.mark.parametrize(
    "given, says",
    [
        ("8080", "host and port"),
        (":8080", "host and port"),
        ("127.0.0.1", "host and port"),
        ("::1:8080", "in brackets"),
        ("[127.0.0.1]:80", "in brackets"),
        ("example.org:80", "IP address"),
        ("*:80", "IP address"),
        ("127.0.0.1:0", "1 to 65535"),
        ("127.0.0.1:65536", "1 to 65535"),
        ("127.0.0.1:+80", "1 to 65535"),
        ("127.0.0.1:٨٠", "1 to 65535"),
        ("127.0.0.1:", "1 to 65535"),
        ("http://127.0.0.1:80", "in brackets"),
        ("unix:", "socket file"),
        ("unix:/run/", "socket file"),
        ("unix:/run/\nx", "socket file"),
        ("unix:/" + "x" * MAX_SOCKET_PATH_BYTES, "too deep: .* 108 bytes, 107 at most"),
        ("systemd", "host and port"),
    ],
)
def test_a_bad_listen_address_is_refused(given: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_listen(given)


def test_a_relative_socket_counts_from_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_listen("unix:run/x.sock").path == f"{tmp_path}/run/x.sock"


@pytest.mark.parametrize(
    "given, normal",
    [
        ("Gateway.Example.", "gateway.example"),
        ("gateway", "gateway"),
        ("10.0.0.7", "10.0.0.7"),
        ("fd00:0::7", "fd00::7"),
        ("[fd00::7]", "fd00::7"),
    ],
)
def test_a_host_name_is_as_a_host_header_has_it(given: str, normal: str) -> None:
    assert parse_host_name(given) == normal


@pytest.mark.parametrize("given", ["", "gateway:8081", "http://gateway", "*.example", "a..b", "a b", "[gateway]"])
def test_what_is_no_bare_host_name_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="host name"):
        parse_host_name(given)


@pytest.mark.parametrize(
    "given, normal",
    [
        ("http://127.0.0.1:8001", "http://127.0.0.1:8001"),
        ("http://127.0.0.1:8001/", "http://127.0.0.1:8001"),
        ("HTTP://Engine-1.Example:8001", "http://engine-1.example:8001"),
        ("http://engine", "http://engine:80"),
        ("https://engine", "https://engine:443"),
        ("http://[::1]", "http://[::1]:80"),
        ("http://[0::1]:8001", "http://[::1]:8001"),
        ("http://vllm_0.svc:8001", "http://vllm_0.svc:8001"),
        ("unix:/run/engine.sock", "unix:/run/engine.sock"),
    ],
)
def test_a_url_has_one_normal_form(given: str, normal: str) -> None:
    assert parse_url(given) == normal
    assert parse_url(normal) == normal


@pytest.mark.parametrize(
    "given, says",
    [
        ("127.0.0.1:8001", "must be"),
        ("engine:8001", "must be"),
        ("ftp://engine", "must be"),
        ("http:", "must be"),
        ("http:///v1", "must be"),
        (f"http://user:{SECRET}@engine", "no user or password"),
        (f"http://{SECRET}@engine", "no user or password"),
        (f"http://engine/v1/{SECRET}", "adds the path"),
        (f"http://engine?key={SECRET}", "adds the path"),
        (f"http://engine#{SECRET}", "adds the path"),
        ("http://engine?", "adds the path"),
        ("http://engine:99999", "1 to 65535"),
        ("http://engine:", "1 to 65535"),
        ("http://engine:x", "1 to 65535"),
        ("http://[::1", "not a url"),
        ("http://[::x]:1", "not a url|IPv6"),
        ("http://-engine", "name or an IP"),
        ("http://a..b", "name or an IP"),
        ("http://::1:80", "name or an IP"),
        ("http://engine :80", "blanks"),
        ("http://engine\r\n", "blanks"),
        ("unix:", "socket file"),
    ],
)
def test_a_bad_url_is_refused_without_repeating_it(given: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        parse_url(given)
    assert SECRET not in str(caught.value)
