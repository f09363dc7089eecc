"""`pacekeeper status`: the sentence first, then what it stands on."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import msgspec
import pytest

from gateway.cli.screen import Screen
from gateway.cli.status import _mood, outcome_style, show
from gateway.core.stream.summary import Outcome
from gateway.ports import StatusReport
from tests.fakes.admin_server import FakeGateway, status_report
from tests.fakes.terminal import Terminal

EXPECTED = """\
2 of 3 backends serve, 5 requests in flight; c is ejected.

  version     0.1.0, up 3 h
  config      /etc/pacekeeper/gateway.yaml, read 3 min ago, generation 12
  history     12,364 requests
  outcomes    ok 12,345 · client_gone 17 · upstream_error 2
  refused     tokens_per_minute 1,000 · queue_full 21
  quarantine  1 request that backends died of; see pacekeeper quarantine list

POOL   SERVING  BACKENDS  AT LEAST  WAITING  LONGEST  REFUSED        MODELS
kimi         2         2         1        4      7 s    1,021        kimi-k2.5
small        0         1         1        0        –        0  down  as the backends report

WORKER   PID    UP  IN FLIGHT  CONNECTIONS  GENERATION  RECORDS LOST
0       4711   3 h          3           17          12             0
1       4712  44 s          2            9          11             3  silent
"""


def test_the_whole_gateway_in_one_look(pacekeeper: Callable[..., str]) -> None:
    assert pacekeeper("status") == EXPECTED


def test_json_is_what_the_gateway_said(pacekeeper: Callable[..., str], gateway: FakeGateway) -> None:
    assert json.loads(pacekeeper("status", "--json")) == json.loads(msgspec.json.encode(gateway.status))


def shown(report: StatusReport) -> str:
    stream = io.StringIO()
    show(report, Screen(stream), now=0.0)
    return stream.getvalue()


def test_a_gateway_that_has_served_nothing_and_cannot_store_says_so() -> None:
    report = msgspec.structs.replace(status_report(0.0), outcomes={}, store_rows=0, store_problem="the disk is full")
    assert "outcomes    none yet\n" in shown(report)
    assert "history     0 requests; the disk is full\n" in shown(report)


def test_what_never_happened_has_no_line() -> None:
    report = msgspec.structs.replace(status_report(0.0), refused={"queue_full": 0}, quarantined=0)
    assert "refused " not in shown(report)
    assert "quarantine" not in shown(report)


def test_a_configuration_that_is_being_read_is_told() -> None:
    assert "being read again" in shown(msgspec.structs.replace(status_report(0.0), reloading=True))


def test_a_stop_is_a_warning_whatever_the_pools_are() -> None:
    report = msgspec.structs.replace(status_report(0.0), summary="stopping", stop_left_s=3.0)
    assert _mood(report) == "warn"
    assert _mood(msgspec.structs.replace(report, stop_left_s=None)) == "bad"


def test_keys_are_counted_and_a_damaged_file_of_them_is_told() -> None:
    report = msgspec.structs.replace(status_report(0.0), keys=3)
    assert "keys        3 keys of clients\n" in shown(report)
    damaged = msgspec.structs.replace(report, keys_problem="keys.json: open to others")
    assert "keys        3 keys of clients; keys.json: open to others\n" in shown(damaged)


def test_a_pool_below_its_least_is_short() -> None:
    report = status_report(0.0)
    pool = msgspec.structs.replace(report.pools[0], min_available=3)
    assert " short " in shown(msgspec.structs.replace(report, pools=(pool,)))


def test_models_that_no_backend_reports_are_named() -> None:
    report = status_report(0.0)
    pool = msgspec.structs.replace(report.pools[0], models=("a", "b"), unreported=("a", "b"))
    assert "\n  pool kimi: no backend reports a, b\n" in shown(msgspec.structs.replace(report, pools=(pool,)))


@pytest.mark.parametrize("width", [80, 100, 120])
def test_no_line_is_wider_than_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", str(width))
    show(status_report(0.0), Screen(terminal), now=0.0)
    assert max(map(len, terminal.text.splitlines())) <= width


def test_the_sentence_warns_by_its_colour_only_when_something_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    report = status_report(0.0)
    good = msgspec.structs.replace(report, pools=report.pools[:1], workers=report.workers[:1])
    unwritten = msgspec.structs.replace(good, store_problem="the disk is full")
    silent = msgspec.structs.replace(good, workers=report.workers)
    misnamed = msgspec.structs.replace(good, pools=(msgspec.structs.replace(good.pools[0], unreported=("x",)),))
    warnings = [(case, "\x1b[33m") for case in (unwritten, silent, misnamed)]
    for case, colour in [(report, "\x1b[1;31m"), (good, "\x1b[1m"), *warnings]:
        terminal = Terminal(monkeypatch)
        show(case, Screen(terminal), now=0.0)
        assert terminal.getvalue().startswith(colour)


def test_every_outcome_has_a_style() -> None:
    assert {outcome_style(outcome) for outcome in Outcome} == {"good", "dim", "warn", "bad"}
