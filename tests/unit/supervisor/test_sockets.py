"""Listeners: who gets which, what is refused with which words, how they close.  Real sockets on loopback."""

from __future__ import annotations

import os
import socket
import stat
from collections import Counter
from pathlib import Path

import pytest

from gateway.errors import OperatorError, PortInUse
from gateway.supervisor.sockets import open_listeners


def opened(clients=("127.0.0.1:0",), *, operators=("127.0.0.1:0",), slots=1, environ=None):
    return open_listeners(clients=clients, operators=operators, slots=slots, environ=environ or {})


def connect(address: str) -> socket.socket:
    if address.startswith("unix:"):
        client = socket.socket(socket.AF_UNIX)
        try:
            client.connect(address.removeprefix("unix:"))
        except OSError:
            client.close()
            raise
        return client
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=5.0)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def accept(fd: int) -> socket.socket:
    with socket.socket(fileno=os.dup(fd)) as listener:
        listener.settimeout(5.0)
        return listener.accept()[0]


def test_one_worker_has_one_socket_an_address_without_port_sharing() -> None:
    with opened(("127.0.0.1:0", "127.0.0.1:0")) as listeners:
        ((first, second),) = listeners.slot_fds
        for fd in (first, second):
            assert not os.get_blocking(fd)
            with socket.socket(fileno=os.dup(fd)) as sock:
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT) == 0
        assert len(listeners.client_addresses) == 2


def test_several_workers_have_a_socket_each_and_the_kernel_spreads_connections() -> None:
    with opened(slots=3) as listeners:
        (address,) = listeners.client_addresses
        clients = [connect(address) for _ in range(60)]
        accepted = Counter()
        for slot, (fd,) in enumerate(listeners.slot_fds):
            with socket.socket(fileno=os.dup(fd)) as listener:
                listener.settimeout(0)
                while True:
                    try:
                        listener.accept()[0].close()
                    except BlockingIOError:
                        break
                    accepted[slot] += 1
        for client in clients:
            client.close()
    assert sum(accepted.values()) == 60
    assert len(accepted) == 3


def test_a_unix_socket_is_shared_by_all_slots_and_its_file_goes_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "clients.sock"
    with opened((f"unix:{path}",), slots=2) as listeners:
        assert listeners.slot_fds[0] == listeners.slot_fds[1]
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        connect(f"unix:{path}").close()
    assert not path.exists()


def test_ipv6_is_listened_on_alone() -> None:
    with opened(("[::1]:0",), slots=2) as listeners:
        (address,) = listeners.client_addresses
        assert address.startswith("[::1]:")
        connect(address).close()


# --- refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("sharing", [False, True], ids=["plain", "the stranger shares its port"])
def test_a_port_in_use_is_named_with_who_listens(slots: int, sharing: bool) -> None:
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(sharing))
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        with pytest.raises(PortInUse, match=rf"127\.0\.0\.1:{port}: already in use by pid {os.getpid()} \(.+\)"):
            opened((f"127.0.0.1:{port}",), slots=slots)


def test_two_gateways_cannot_share_a_port_by_accident() -> None:
    with opened(slots=2) as listeners, pytest.raises(PortInUse):
        opened(tuple(listeners.client_addresses), slots=2)


def test_a_port_whose_last_connections_linger_can_be_taken_again() -> None:
    with opened() as listeners:
        (address,) = listeners.client_addresses
        with connect(address):
            accept(listeners.slot_fds[0][0]).close()  # the side that closes first keeps the port in TIME_WAIT
    with opened((address,)) as again:
        assert list(again.client_addresses) == [address]
        connect(address).close()


def test_an_address_that_is_not_ours_is_named() -> None:
    with pytest.raises(OperatorError, match=r"192\.0\.2\.1:8080: cannot listen: cannot assign requested address"):
        opened(("192.0.2.1:8080",))


def test_nothing_is_left_open_when_one_address_is_refused(tmp_path: Path) -> None:
    before = open_descriptors()
    with opened() as listeners:
        taken = listeners.client_addresses[0]
        held = open_descriptors()
        with pytest.raises(PortInUse):
            opened(("127.0.0.1:0", f"unix:{tmp_path}/a.sock"), operators=(taken,))
        assert open_descriptors() == held
    assert open_descriptors() == before


def test_a_unix_socket_that_answers_is_in_use(tmp_path: Path) -> None:
    path = tmp_path / "clients.sock"
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(str(path))
        stranger.listen()
        with pytest.raises(PortInUse, match=rf"unix:{path}: already in use by pid {os.getpid()} "):
            opened((f"unix:{path}",))


def test_the_file_of_a_dead_process_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "clients.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()
    with opened((f"unix:{path}",)) as listeners:
        client = connect(f"unix:{path}")
        accept(listeners.slot_fds[0][0]).close()
        assert client.recv(1) == b"", "who answers is the new one"
        client.close()
    assert not path.exists()


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("precious")
    with pytest.raises(OperatorError, match="there is a file that is no socket"):
        opened((f"unix:{path}",))
    assert path.read_text() == "precious"


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="cannot listen: no such file or directory"):
        opened((f"unix:{tmp_path}/missing/clients.sock",))


def test_a_socket_file_that_another_process_put_in_place_is_left_to_it(tmp_path: Path) -> None:
    path = tmp_path / "clients.sock"
    with opened((f"unix:{path}",)):
        path.unlink()
        path.write_text("another's")
    assert path.read_text() == "another's"


# --- closing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_a_listener_is_shut_once_its_queue_is_empty_and_then_refuses(kind: str, tmp_path: Path) -> None:
    address = "127.0.0.1:0" if kind == "tcp" else f"unix:{tmp_path}/clients.sock"
    with opened((address,)) as listeners:
        (address,) = listeners.client_addresses
        ((fd,),) = listeners.slot_fds
        waiting = connect(address)
        assert not listeners.refuse_clients(now_at_all_events=False)
        connect(address).close()  # still taken in
        accept(fd).close()
        accept(fd).close()
        assert listeners.refuse_clients(now_at_all_events=False)
        with pytest.raises(ConnectionRefusedError):
            connect(address)
        assert listeners.refuse_clients(now_at_all_events=True)
        waiting.close()


def test_a_queue_that_never_empties_is_reset_when_patience_ends() -> None:
    with opened() as listeners:
        waiting = connect(listeners.client_addresses[0])
        assert listeners.refuse_clients(now_at_all_events=True)
        with pytest.raises(ConnectionResetError):
            waiting.recv(1)
        waiting.close()


def test_only_slots_with_an_empty_queue_are_shut() -> None:
    with opened(slots=2) as listeners:
        client = connect(listeners.client_addresses[0])
        assert not listeners.refuse_clients(now_at_all_events=False)
        assert len(listeners._shut) == 1
        client.close()


def test_operators_may_connect_to_the_end() -> None:
    with opened() as listeners:
        assert listeners.refuse_clients(now_at_all_events=True)
        with pytest.raises(ConnectionRefusedError):
            connect(listeners.client_addresses[0])
        client = connect(listeners.operator_addresses[0])
        assert client.getpeername()[1] == int(listeners.operator_addresses[0].rpartition(":")[2])
        client.close()
