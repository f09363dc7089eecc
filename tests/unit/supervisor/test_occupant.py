"""Naming who listens: found for a process of ours, silent where nothing can be seen."""

from __future__ import annotations

import os
import socket

from gateway.supervisor import occupant


def test_the_process_behind_a_port_is_named() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        assert occupant.of_port(listener.getsockname()[1]).startswith(f"pid {os.getpid()} (")


def test_the_process_behind_an_ipv6_port_is_named() -> None:
    with socket.socket(socket.AF_INET6) as listener:
        listener.bind(("::1", 0))
        listener.listen()
        assert occupant.of_port(listener.getsockname()[1]).startswith(f"pid {os.getpid()} (")


def test_a_port_that_is_only_bound_is_nobodys() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert occupant.of_port(bound.getsockname()[1]) == ""


def test_a_client_port_is_nobodys() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with socket.create_connection(listener.getsockname()) as client:
            assert occupant.of_port(client.getsockname()[1]) == ""
