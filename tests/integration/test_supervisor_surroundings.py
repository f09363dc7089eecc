"""The supervisor and what is around it: ports, Unix sockets, slots that are adopted, the service manager."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from gateway.core.supervision.state import SupervisionPolicy
from tests.fakes.supervised import supervised


def test_a_port_in_use_is_one_line_with_the_place_and_status_2(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        with supervised(tmp_path, clients=(f"127.0.0.1:{port}",)) as gateway:
            assert gateway.await_exit() == 2
            (line,) = gateway.raw
            assert line.startswith(f"127.0.0.1:{port}: already in use by pid {os.getpid()} (")
            assert gateway.journal() == []


def test_a_dead_slot_is_adopted_by_a_sibling_and_given_back(tmp_path: Path) -> None:
    policy = SupervisionPolicy(adopt_after_s=0.2)
    with supervised(tmp_path, workers=2, policy=policy) as gateway:
        gateway.await_ready()
        gateway.wish(worker_0={"late_s": 2.0})
        os.kill(gateway.pid_of("worker 0"), signal.SIGKILL)
        sibling = f"worker 1 {gateway.pid_of('worker 1')}"
        gateway.await_event("supervisor.decided", reason="worker 0 has been down for .* worker 1 accepts for it")
        assert {gateway.ask() for _ in range(50)} == {sibling}
        gateway.await_event("supervisor.decided", reason="worker 0 is ready")
        back = f"worker 0 {gateway.pid_of('worker 0')}"
        assert {gateway.ask() for _ in range(50)} == {sibling, back}
        gateway.signal(signal.SIGTERM)
        assert gateway.await_exit() == 0
        told = [entry for entry in gateway.journal() if "adopt" in entry or "release" in entry]
        assert told[-2:] == ["worker 1 adopt 0", "worker 1 release 0"]  # a slow start may have had its own


def test_a_unix_listener_is_shared_by_the_workers_and_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "clients.sock"
    with supervised(tmp_path, workers=2, clients=(f"unix:{path}",)) as gateway:
        gateway.await_ready()
        os.kill(gateway.pid_of("worker 0"), signal.SIGKILL)
        gateway.await_event("supervisor.decided", reason="worker 0 ended")  # else it ends while stopping, a fault
        for _ in range(20):
            with socket.socket(socket.AF_UNIX) as client, client.makefile() as answer:
                client.settimeout(20.0)
                client.connect(str(path))
                assert answer.readline().startswith("worker ")
        gateway.signal(signal.SIGTERM)
        assert gateway.await_exit() == 0
        assert not path.exists()


@pytest.fixture
def manager(tmp_path: Path):
    """A service manager that keeps what it is told."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(str(tmp_path / "notify"))
        bound.settimeout(20.0)
        yield bound


def hears(manager: socket.socket, wanted: str) -> str:
    """The next datagram that begins with ``wanted``."""
    while not (text := manager.recv(4096).decode()).startswith(wanted):
        pass
    return text


def test_the_service_manager_hears_of_readiness_reloads_and_the_stop(tmp_path: Path, manager) -> None:
    with supervised(tmp_path, environ={"NOTIFY_SOCKET": str(tmp_path / "notify")}) as gateway:
        hears(manager, "READY=1")
        gateway.signal(signal.SIGHUP)
        hears(manager, "RELOADING=1\nMONOTONIC_USEC=")
        hears(manager, "READY=1")
        gateway.signal(signal.SIGTERM)
        hears(manager, "STOPPING=1")
        assert gateway.await_exit() == 0
        assert "control reload" in gateway.journal()


def test_the_watchdog_is_fed_only_while_a_worker_is_well(tmp_path: Path, manager) -> None:
    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "150000"}
    with supervised(tmp_path, environ=environ) as gateway:
        gateway.await_ready()
        for _ in range(3):
            hears(manager, "WATCHDOG=1")
        gateway.wish(worker_0={"late_s": 60})
        os.kill(gateway.pid_of("worker 0"), signal.SIGKILL)
        gateway.await_event("supervisor.started", child="worker 0")
        manager.settimeout(0.5)
        with pytest.raises(TimeoutError):
            hears(manager, "nothing like this, since nothing comes")


def test_a_socket_of_the_service_manager_replaces_the_configured_address_and_outlives_the_stop(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as activated:
        with supervised(tmp_path, workers=2, inherited=activated) as gateway:
            gateway.await_ready()
            assert gateway.address == activated.getsockname()
            assert gateway.ask().startswith("worker ")
            gateway.signal(signal.SIGTERM)
            assert gateway.await_exit() == 0
        with socket.create_connection(activated.getsockname(), timeout=5.0) as waiting:
            activated.settimeout(5.0)
            accepted, _ = activated.accept()  # it waited for the next start
            accepted.close()
            assert waiting.recv(1) == b""


def test_children_do_not_learn_of_the_service_manager(tmp_path: Path, manager) -> None:
    with supervised(tmp_path, environ={"NOTIFY_SOCKET": str(tmp_path / "notify")}) as gateway:
        gateway.await_ready()
        environ = Path(f"/proc/{gateway.pid_of('control')}/environ").read_bytes()
        assert b"PATH=" in environ
        assert b"NOTIFY_SOCKET" not in environ
