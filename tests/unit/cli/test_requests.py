"""`pacekeeper requests list` and `show`: filters, the table, and ids that were cut."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from gateway.cli.requests import RequestPage, show_list
from gateway.cli.screen import Screen
from gateway.ports import StoredRequest
from tests.fakes.admin_server import FakeGateway, record, request_rows
from tests.fakes.terminal import Terminal

LIST = """\
ACCEPTED    REQUEST               MODEL                               BACKEND  OUTCOME           ERROR            TTFT  TOTAL  TOKENS  DECODE  EFFECTIVE
                                                                                                                     s      s           tok/s      tok/s
3 s ago     3f2a9c01b2d400000007  kimi-k2.5                           a        ok                –                0.41   6.82     512    80.1      ~40.0
1 min ago   3f2a9c01b2d400000006  moonshotai/Kimi-K2.5-Instruct-0905  a        ok                –                0.41   6.82     512    80.1      ~40.0
1 min ago   9d02c0ffee1100000005  kimi-k2.5                           a        client_gone       –                   –   1.50       –       –          –
11 min ago  9d02c0ffee1100000004  kimi-k2.5                           a        upstream_timeout  backend_stalled     –    612       –       –          –
1 d ago     client-chosen-id      kimi-k2.5                           a        rejected          –                   –  0.001       –       –          –
"""


def test_the_newest_requests_with_their_pace(pacekeeper: Callable[..., str]) -> None:
    assert pacekeeper("requests", "list") == LIST


def test_whose_requests_they_were_is_told_where_clients_have_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (StoredRequest(id=1, record=record(0.0, "x", key_id="team-a")), StoredRequest(id=2, record=record(0.0, "y")))
    terminal = Terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "120")
    show_list(RequestPage(items=rows), Screen(terminal), now=0.0)
    title, _, mine, nobodys = terminal.text.splitlines()
    at = title.index("KEY")
    assert (mine[at : at + 6], nobodys[at]) == ("team-a", "–")
    assert "ERROR" not in title


def test_a_list_that_goes_on_says_how(pacekeeper: Callable[..., str]) -> None:
    assert pacekeeper("requests", "list", "--limit", "2").endswith("\n\nmore: --before 99\n")


def test_filters_reach_the_gateway(pacekeeper: Callable[..., str], gateway: FakeGateway) -> None:
    given = {"--model": "m", "--backend": "b", "--outcome": "client_gone", "--limit": "7", "--before": "9"}
    pacekeeper("requests", "list", "--slowest", *(word for pair in given.items() for word in pair))
    assert gateway.seen[-1][1] == {
        "model": "m",
        "backend": "b",
        "outcome": "client_gone",
        "slowest": "true",
        "limit": "7",
        "before": "9",
    }


def test_without_filters_only_the_limit_is_sent(pacekeeper: Callable[..., str], gateway: FakeGateway) -> None:
    pacekeeper("requests", "list")
    assert gateway.seen[-1][1] == {"limit": "20"}


@pytest.mark.parametrize("arguments", [("--outcome", "nice"), ("--limit", "0"), ("--limit", "501"), ("--before", "-1")])
def test_a_filter_that_is_none_is_wrong_usage(arguments: tuple[str, str], pacekeeper: Callable[..., str]) -> None:
    assert "Invalid value" in pacekeeper("requests", "list", *arguments, exits=2)


def test_an_empty_history_is_said_in_words(pacekeeper: Callable[..., str], gateway: FakeGateway) -> None:
    gateway.requests = ()
    assert pacekeeper("requests", "list") == "no such requests\n"


def test_json_is_what_the_gateway_said(pacekeeper: Callable[..., str]) -> None:
    page = json.loads(pacekeeper("requests", "list", "--json"))
    assert [item["id"] for item in page["items"]] == [100, 99, 98, 97, 96]
    assert json.loads(pacekeeper("requests", "show", "client-chosen-id", "--json"))["record"]["outcome"] == "rejected"


def test_the_beginning_of_an_id_is_enough(pacekeeper: Callable[..., str]) -> None:
    for given in ("9d02c0ffee1100000004", "9d02c0ffee1100000004…", "client"):
        assert "accepted" in pacekeeper("requests", "show", given)


def test_the_beginning_of_several_ids_is_not(pacekeeper: Callable[..., str]) -> None:
    said = pacekeeper("requests", "show", "3f2a", exits=5)
    assert said == "pacekeeper: 2 requests begin with 3f2a: 3f2a9c01b2d400000006, 3f2a9c01b2d400000007\n"


@pytest.mark.parametrize("given", ["zz", "…"])
def test_an_id_that_is_none_is_not_found(given: str, pacekeeper: Callable[..., str]) -> None:
    assert pacekeeper("requests", "show", given, exits=5) == f"pacekeeper: no request {given}\n"


def test_another_failure_is_not_taken_for_a_cut_id(pacekeeper: Callable[..., str], gateway: FakeGateway) -> None:
    gateway.raw = (503, b'{"error": {"message": "the store is away", "code": "store_unusable"}}')
    assert pacekeeper("requests", "show", "x", exits=1) == "pacekeeper: the store is away\n"
    assert len(gateway.seen) == 1


@pytest.mark.parametrize("width", [80, 100, 120])
def test_no_line_of_the_list_is_wider_than_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", str(width))
    show_list(RequestPage(items=request_rows(0.0), next=3), Screen(terminal), now=0.0)
    assert max(map(len, terminal.text.splitlines())) <= width
