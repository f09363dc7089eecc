"""`pacekeeper quarantine`: what is asked of the gateway, and what is printed."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import msgspec

from gateway.cli.exits import Exit
from gateway.cli.quarantine import show_list
from gateway.cli.screen import Screen
from gateway.ports import QuarantineReport
from tests.fakes.admin_server import FakeGateway, failure

NOW = 1_700_000_000.0
HELD = (
    QuarantineReport(fingerprint="00ff00ff00ff00ff", backends=("a", "b"), first_wall=NOW - 130, until_wall=NOW + 500),
    QuarantineReport(fingerprint="1122334455667788", backends=("a", "a"), first_wall=NOW - 9, until_wall=NOW - 1),
)

EXPECTED = """\
FINGERPRINT           SINCE   LEFT  DEATHS  BACKENDS
00ff00ff00ff00ff  2 min ago  8 min       2  a, b
1122334455667788    9 s ago    0 s       2  a
"""


def listed(*reports: QuarantineReport) -> str:
    stream = io.StringIO()
    show_list(reports, Screen(stream), now=NOW)
    return stream.getvalue()


def test_what_is_refused_is_listed_with_the_time_that_is_left() -> None:
    assert listed(*HELD) == EXPECTED


def test_nothing_refused_is_said() -> None:
    assert listed() == "no request is quarantined\n"


def test_the_list_is_asked_for(pacekeeper: Callable[..., str], gateway: FakeGateway) -> None:
    gateway.raw = 200, msgspec.json.encode({"items": HELD, "next": None})
    assert "00ff00ff00ff00ff" in pacekeeper("quarantine", "list")
    assert len(json.loads(pacekeeper("quarantine", "list", "--json"))["items"]) == 2
    assert {path for path, _, _ in gateway.seen} == {"/admin/v1/quarantine"}


def test_one_is_released(pacekeeper: Callable[..., str], gateway: FakeGateway) -> None:
    gateway.raw = 200, b'{"fingerprint": "00ff00ff00ff00ff"}'
    assert pacekeeper("quarantine", "release", "00ff00ff00ff00ff") == "00ff00ff00ff00ff is served again\n"
    assert json.loads(pacekeeper("quarantine", "release", "00ff00ff00ff00ff", "--json")) == {
        "fingerprint": "00ff00ff00ff00ff"
    }
    assert gateway.methods == ["DELETE", "DELETE"]
    assert {path for path, _, _ in gateway.seen} == {"/admin/v1/quarantine/00ff00ff00ff00ff"}


def test_one_that_is_not_there_is_an_error(pacekeeper: Callable[..., str], gateway: FakeGateway) -> None:
    gateway.raw = failure(404, "not_found", "no request of that fingerprint is quarantined")
    told = pacekeeper("quarantine", "release", "ff", exits=Exit.NOT_FOUND.value)
    assert "no request of that fingerprint is quarantined" in told
