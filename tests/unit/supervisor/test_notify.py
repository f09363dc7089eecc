"""What a service manager hears, on a real datagram socket, and what children must not inherit."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest

from gateway.core.supervision.state import Notice
from gateway.supervisor.notify import Notifier, for_children


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path: Path):
    """A service manager's socket and the variable that names it."""
    if request.param == "path":
        address = text = str(tmp_path / "notify")
    else:
        text = f"@pacekeeper-test-{os.getpid()}"
        address = "\0" + text[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(address)
        bound.settimeout(5.0)
        yield bound, text


def test_each_notice_is_one_datagram(manager) -> None:
    bound, text = manager
    notifier = Notifier({"NOTIFY_SOCKET": text})
    for notice in (Notice.READY, Notice.RELOADING, Notice.STOPPING):
        notifier.announce(notice)
    notifier.feed_watchdog()
    notifier.status("two\nlines")
    heard = [bound.recv(4096).decode() for _ in range(5)]
    notifier.close()
    assert heard[0] == "READY=1"
    assert re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=[0-9]+", heard[1])
    assert heard[2:] == ["STOPPING=1", "WATCHDOG=1", "STATUS=two lines"]


def test_without_a_service_manager_nothing_is_sent() -> None:
    notifier = Notifier({"WATCHDOG_USEC": "1000000"})
    notifier.announce(Notice.READY)
    assert notifier.watchdog_s is None
    notifier.close()


def test_a_service_manager_that_is_gone_is_no_error_and_hears_again_when_it_is_back(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    notifier = Notifier({"NOTIFY_SOCKET": address})
    notifier.announce(Notice.READY)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as back:
        back.bind(address)
        back.settimeout(5.0)
        notifier.announce(Notice.STOPPING)
        assert back.recv(4096) == b"STOPPING=1"
        notifier.close()
        notifier.announce(Notice.READY)
        back.settimeout(0.0)
        with pytest.raises(BlockingIOError):
            back.recv(4096)


@pytest.mark.parametrize(
    "usec,pid,expected",
    [
        ("30000000", "", 30.0),
        ("30000000", "OURS", 30.0),
        ("30000000", "1", None),
        ("0", "", None),
        ("", "", None),
        ("soon", "", None),
    ],
)
def test_the_watchdogs_period_is_read_if_it_is_meant_for_us(tmp_path: Path, usec, pid, expected) -> None:
    pid = str(os.getpid()) if pid == "OURS" else pid
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": usec, "WATCHDOG_PID": pid})
    assert notifier.watchdog_s == expected
    notifier.close()


def test_children_get_the_environment_without_what_was_meant_for_the_supervisor() -> None:
    environ = {"PATH": "/bin", "NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "1", "LISTEN_FDS": "1", "LISTEN_PID": "2"}
    assert for_children(environ) == {"PATH": "/bin"}
