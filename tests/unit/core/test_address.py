"""Listen addresses as text and as values, and the bound of a socket's path."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from gateway.core.address import (
    MAX_SOCKET_PATH_BYTES,
    Address,
    address_of,
    link_path,
    parse_port,
    parse_socket_path,
    socket_path_fault,
)


@pytest.mark.parametrize(
    "text, address, private",
    [
        ("127.0.0.1:8080", Address(host="127.0.0.1", port=8080), True),
        ("localhost:8080", Address(host="127.0.0.1", port=8080), True),
        ("[0:0::1]:80", Address(host="::1", port=80), True),
        ("0.0.0.0:1", Address(host="0.0.0.0", port=1), False),
        ("[::]:1", Address(host="::", port=1), False),
        ("unix:/run/x.sock", Address(path="/run/x.sock"), True),
        ("unix:///run/x.sock", Address(path="/run/x.sock"), True),
        ("unix:run/x.sock", Address(path="run/x.sock"), True),
    ],
)
def test_an_address_is_read_and_written_in_one_normal_form(text: str, address: Address, private: bool) -> None:
    assert address_of(text) == address
    assert address.is_private is private
    assert address_of(str(address)) == address


def test_the_system_chooses_a_port_only_where_that_is_asked_for() -> None:
    assert address_of("127.0.0.1:0", lowest_port=0).port == 0
    with pytest.raises(ValueError, match="from 1 to 65535"):
        address_of("127.0.0.1:0")


@pytest.mark.parametrize("text", ["", "8080", ":8080", "::1:80", "[127.0.0.1]:80", "example.org:80", "127.0.0.1:x"])
def test_what_is_no_address_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ValueError, match=r"host|brackets|port") as caught:
        address_of(text)
    assert "example.org" not in str(caught.value)


@pytest.mark.parametrize("digits", ["", "-1", "+1", "65536", "000080", "٨", "1.0"])
def test_a_port_is_plain_digits_within_bounds(digits: str) -> None:
    with pytest.raises(ValueError, match="port"):
        parse_port(digits, lowest=0)


@pytest.mark.parametrize("text", ["unix:", "unix:/run/", "unix:/run/\nx", "unix:/x?y", "unix://"])
def test_a_path_that_is_no_socket_file_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="socket file"):
        parse_socket_path(text)


def test_the_bound_of_a_path_is_the_systems(tmp_path: Path) -> None:
    room = MAX_SOCKET_PATH_BYTES - len(str(tmp_path)) - len("//link.sock")
    for deeper, fault in ((0, ""), (1, "a socket's path of 108 bytes, 107 at most are possible")):
        folder = tmp_path / ("d" * (room + deeper))
        folder.mkdir()
        path = link_path(str(folder))
        assert socket_path_fault(path) == fault
        with socket.socket(socket.AF_UNIX) as link:
            if fault:
                with pytest.raises(OSError, match="too long"):
                    link.bind(path)
            else:
                link.bind(path)


def test_bytes_count_not_characters() -> None:
    assert socket_path_fault("/" + "é" * 54)
    assert not socket_path_fault("/" + "é" * 53)
