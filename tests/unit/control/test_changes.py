"""Sentences about what a new configuration changes."""

from __future__ import annotations

import pytest

from gateway.control.changes import runtime_changes
from gateway.settings import Pool, Runtime
from tests.fakes.fleets import backend, pool, runtime

BASE = (pool("p", "a", "b"), pool("q", "c", models=("m",)))


def test_the_same_configuration_changes_nothing() -> None:
    assert runtime_changes(runtime(*BASE), runtime(*BASE)) == ()


@pytest.mark.parametrize(
    "pools,sentences",
    [
        (
            (pool("p", "a"), BASE[1]),
            ["backend b: removed; answers that are open go on, its engine is left alone"],
        ),
        ((pool("p", "a", "b", "d"), BASE[1]), ["backend d: added to pool p at http://127.0.0.1:8004"]),
        (
            (pool("p", "a"), pool("q", "b", "c", models=("m",))),
            ["backend b: moved from pool p to q"],
        ),
        (
            (BASE[0],),
            [
                "pool q: removed",
                "backend c: removed; answers that are open go on, its engine is left alone",
            ],
        ),
        (
            (*BASE, pool("r", "d")),
            ["pool r: added", "backend d: added to pool r at http://127.0.0.1:8004"],
        ),
        (
            (pool("p", "a", backend("b", url="http://127.0.0.1:9", api_key_env="K")), BASE[1]),
            ["backend b: url http://127.0.0.1:8002 → http://127.0.0.1:9", "backend b: api_key_env (none) → K"],
        ),
        (
            (pool("p", "a", "b", min_available=2, models=("x", "y")), pool("q", "c")),
            [
                "pool p: models (what its backends report) → x, y",
                "pool p: min_available 1 → 2",
                "pool q: models m → (what its backends report)",
            ],
        ),
    ],
    ids=["removed", "added", "moved", "pool removed", "pool added", "changed", "pools changed"],
)
def test_changes_of_the_fleet_are_told(pools: tuple[Pool, ...], sentences: list[str]) -> None:
    assert list(runtime_changes(runtime(*BASE), runtime(*pools))) == sentences


def test_changes_of_policies_are_told_by_their_path() -> None:
    changed = runtime(*BASE, timers={"stall_s": 60}, probes={"fall": 5}, headers={"backend_name": False})
    assert list(runtime_changes(runtime(*BASE), changed)) == [
        "timers.stall_s 120 → 60",
        "headers.backend_name on → off",
        "probes.fall 3 → 5",
    ]


def test_adapters_that_move_or_go_have_sentences_of_their_own() -> None:
    def with_lora(*lora: dict[str, object]) -> Runtime:
        return runtime(pool("p", "a", lora=lora))

    before = with_lora({"name": "poet", "path": "/a"}, {"name": "gone", "path": "/g"})
    after = with_lora({"name": "poet", "path": "/b", "load": True}, {"name": "new", "path": "/n"})
    assert runtime_changes(before, after) == (
        "pool p: LoRA adapter gone removed; engines that have it loaded keep it",
        "pool p: LoRA adapter poet: path /a → /b",
        "pool p: LoRA adapter poet: load off → on",
        "pool p: LoRA adapter new added",
    )


def test_lists_are_told_in_words() -> None:
    before = runtime(pool("p", "a"))
    reasoning = {"models": [{"model": "tiny", "mode": "drop"}]}
    after = runtime(
        pool("p", "a", aliases=[{"name": "gpt-4o", "model": "tiny"}], reasoning=reasoning),
        cors={"origins": ["https://a.example", "https://b.example"]},
    )
    assert runtime_changes(before, after) == (
        "pool p: aliases (none) → gpt-4o for tiny",
        "pool p: reasoning.models (none) → tiny (mode drop, think_tags off, think_opened off)",
        "cors.origins (none) → https://a.example, https://b.example",
    )
