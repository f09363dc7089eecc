"""The figures of leaving and killing: each way gives one, through the gateway as it is started."""

from __future__ import annotations

import json

import pytest
import uvloop

from benchmarks.leaving import request, rows, run
from benchmarks.leaving_engine import PATHS, Moment


def test_every_way_gives_a_figure_and_so_does_every_api() -> None:
    left, killed = uvloop.run(run(rounds=1, kills=1, beside=2))
    apis = {"chat", "completions", "responses", "messages"}
    assert set(left) == {(it.value, kind, api) for it in Moment for kind in ("stream", "whole") for api in apis}
    assert {api for _, _, api in killed} == apis
    figures = [value for values in (*left.values(), *killed.values()) for value in values]
    assert len(figures) == 36
    assert min(figures) > 0


def test_a_row_for_all_apis_holds_the_figures_of_each() -> None:
    found = rows({("x", "stream", "chat"): [0.001, 0.003], ("x", "stream", "messages"): [0.1]})
    assert ("x", "stream", "all four", 3, 3.0, 100.0, 100.0) in found
    assert ("x", "stream", "chat", 2, 1.0, 3.0, 3.0) in found
    assert len(found) == 3


@pytest.mark.parametrize("path", PATHS)
def test_a_request_says_how_long_it_is(path: str) -> None:
    head, _, body = request(path, model="m", user="u:1", stream=True).partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert json.loads(body)["user"] == "u:1"
