"""`pacekeeper lora`: what is asked of the gateway, what is printed, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest

from gateway.cli.exits import Exit
from gateway.cli.lora import show_list
from gateway.cli.screen import Screen
from gateway.core.routing.adapters import (
    AdapterOnBackend,
    AdapterOutcome,
    AdapterReport,
    AdapterResult,
    AdapterTold,
)
from gateway.core.routing.backend import BackendState
from tests.fakes.admin_server import FakeGateway
from tests.fakes.terminal import Terminal

NOW = 1_700_000_000.0

REPORTS = (
    AdapterReport(
        pool="main",
        name="poet",
        path="/adapters/poet",
        wanted=True,
        backends=(
            AdapterOnBackend(
                backend="gpu-a",
                state=BackendState.SERVING,
                loaded=True,
                path="/adapters/poet",
                result=AdapterResult.LOADED,
                tried_wall=NOW - 65,
            ),
            AdapterOnBackend(
                backend="gpu-b",
                state=BackendState.SERVING,
                loaded=False,
                path="",
                result=AdapterResult.REFUSED,
                detail="LoRA rank 32 is greater than max_lora_rank 16",
                tried_wall=NOW - 3,
                retry_in_s=12.4,
            ),
        ),
    ),
)


def outcome(*results: AdapterResult) -> AdapterOutcome:
    told = tuple(
        AdapterTold(backend=name, result=result, detail="no" if result is AdapterResult.REFUSED else "")
        for name, result in zip("ab", results, strict=True)
    )
    complete = AdapterResult.REFUSED not in results
    return AdapterOutcome(
        pool="main", name="poet", wanted=True, complete=complete, summary="poet is somewhere", backends=told
    )


@pytest.fixture
def configured(gateway: FakeGateway) -> FakeGateway:
    gateway.adapters = REPORTS
    return gateway


@pytest.mark.usefixtures("configured")
def test_adapters_are_listed_by_backend_with_the_reason_of_what_is_amiss(pacekeeper: Callable[..., str]) -> None:
    printed = pacekeeper("lora", "list").splitlines()
    assert printed[0].split() == ["ADAPTER", "POOL", "WANTED", "BACKEND", "STATE", "LOADED", "TRIED", "PATH"]
    assert printed[1].split() == ["poet", "main", "yes", "gpu-a", "serving", "yes", "1", "min", "ago", "/adapters/poet"]
    assert printed[2].split()[5] == "no"
    assert printed[4] == ("poet at gpu-b refused: LoRA rank 32 is greater than max_lora_rank 16; asked again in 12 s")
    assert json.loads(pacekeeper("lora", "list", "--json"))["items"][0]["name"] == "poet"


def test_without_adapters_it_says_where_they_are_configured(pacekeeper: Callable[..., str]) -> None:
    assert pacekeeper("lora", "list") == "no LoRA adapter is configured: pools[].lora names them\n"


def test_the_table_fits_a_terminal_of_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    terminal = Terminal(monkeypatch)
    show_list(REPORTS, Screen(terminal), now=NOW)
    lines = terminal.text.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert all(word in lines[0] for word in ("ADAPTER", "WANTED", "BACKEND", "LOADED"))


def test_an_order_finds_its_pool_by_the_adapter_and_prints_what_each_backend_said(
    pacekeeper: Callable[..., str], configured: FakeGateway
) -> None:
    configured.order = 200, outcome(AdapterResult.LOADED, AdapterResult.ALREADY_LOADED)
    printed = pacekeeper("lora", "load", "poet").splitlines()
    assert [line.split() for line in printed[:3]] == [
        ["BACKEND", "RESULT"],
        ["a", "loaded"],
        ["b", "already", "loaded"],
    ]
    assert printed[4] == "poet is somewhere"
    assert (configured.methods[-1], configured.seen[-1][0]) == ("POST", "/admin/v1/lora/main/poet/load")
    pacekeeper("lora", "load", "poet", "--reload", "--pool", "other")
    assert configured.seen[-1][:2] == ("/admin/v1/lora/other/poet/load", {"reload": "true"})
    pacekeeper("lora", "unload", "poet")
    assert configured.seen[-1][0] == "/admin/v1/lora/main/poet/unload"


@pytest.mark.parametrize("status", [207, 502])
def test_an_order_that_is_not_carried_out_everywhere_ends_with_1(
    pacekeeper: Callable[..., str], configured: FakeGateway, status: int
) -> None:
    configured.order = status, outcome(AdapterResult.LOADED, AdapterResult.REFUSED)
    assert "b        refused" in pacekeeper("lora", "load", "poet", exits=Exit.FAULT)
    told = json.loads(pacekeeper("lora", "load", "poet", "--json", exits=Exit.FAULT))
    assert (told["complete"], told["backends"][1]["detail"]) == (False, "no")


@pytest.mark.usefixtures("configured")
def test_an_adapter_that_nobody_configured_ends_with_5_and_names_those_that_are(pacekeeper: Callable[..., str]) -> None:
    printed = pacekeeper("lora", "load", "stranger", exits=Exit.NOT_FOUND)
    assert "no pool has a LoRA adapter stranger; configured: poet" in printed
    assert "pools[].lora" in printed


def test_a_refusal_of_the_gateway_is_printed_in_its_own_words(
    pacekeeper: Callable[..., str], gateway: FakeGateway
) -> None:
    gateway.raw = 404, msgspec.json.encode({"error": {"message": "there is no pool x", "code": "not_found"}})
    assert "there is no pool x" in pacekeeper("lora", "unload", "poet", "--pool", "x", exits=Exit.NOT_FOUND)
