"""`pacekeeper backends`: what is shown, and in which words."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import msgspec
import pytest

from gateway.cli.backends import show_list, state_style
from gateway.cli.screen import Screen
from gateway.core.routing.backend import BackendState
from tests.fakes.admin_server import FakeGateway, backend_reports
from tests.fakes.terminal import Terminal

LIST = """\
BACKEND  POOL   STATE    SINCE    IN FLIGHT  RUNNING  WAITING   RATE  URL                                 MODELS
                                                               tok/s
a        kimi   serving  1 h ago          3        3        0  231.4  http://127.0.0.1:8001               kimi-k2.5
b        kimi   serving  1 h ago          2        2        0   98.0  https://vllm.internal.example:8443  kimi-k2.5
c        small  ejected  1 h ago          0        –        –      –  unix:/run/vllm/engine.sock          –

c ejected: connection refused, 3 times in a row
"""

SHOW = """\
a is serving since {since} (1 h ago)

  pool        kimi
  url         http://127.0.0.1:8001
  driver      static
  models      kimi-k2.5
  engine      0.11.0
  last probe  1 s ago

  in flight   3 from this gateway
  in engine   3 running, 0 waiting
  rate        231.4 tok/s, all requests together
  pace        80.2 tok/s at 1, 61.0 tok/s at 3.46 streams, each
  generated   1,234,567 tokens since the engine's start
  requests    8,123 settled
"""


def test_the_list_says_why_one_is_not_serving(pacekeeper: Callable[..., str]) -> None:
    assert pacekeeper("backends", "list") == LIST


def test_one_backend_in_full(pacekeeper: Callable[..., str], gateway: FakeGateway) -> None:
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(gateway.backends[0].since_wall))
    assert pacekeeper("backends", "show", "a") == SHOW.format(since=since)


def test_what_is_not_known_is_left_out(pacekeeper: Callable[..., str]) -> None:
    shown = pacekeeper("backends", "show", "c")
    assert "\nconnection refused, 3 times in a row\n" in shown
    assert "tok/s" not in shown
    assert "models      not known yet" in shown


def test_a_profile_is_shown_where_there_is_one(pacekeeper: Callable[..., str], gateway: FakeGateway) -> None:
    gateway.backends = (msgspec.structs.replace(gateway.backends[0], profile="stock"),)
    assert "  profile     stock\n" in pacekeeper("backends", "show", "a")


def test_a_name_that_is_none_is_not_found(pacekeeper: Callable[..., str]) -> None:
    assert pacekeeper("backends", "show", "zz", exits=5) == "pacekeeper: no backend zz\n"


def test_json_is_what_the_gateway_said(pacekeeper: Callable[..., str], gateway: FakeGateway) -> None:
    assert json.loads(pacekeeper("backends", "list", "--json"))["items"] == json.loads(
        msgspec.json.encode(gateway.backends)
    )
    assert json.loads(pacekeeper("backends", "show", "b", "--json"))["name"] == "b"


@pytest.mark.parametrize("width", [80, 100, 120])
def test_no_line_of_the_list_is_wider_than_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", str(width))
    show_list(backend_reports(0.0), Screen(terminal), now=0.0)
    lines = terminal.text.splitlines()
    assert max(map(len, lines)) <= width
    assert "http://127.0.0.1:8001" in lines[2]


def test_every_state_has_a_style() -> None:
    assert {state_style(state) for state in BackendState} == {"good", "busy", "warn", "bad", "dim"}
