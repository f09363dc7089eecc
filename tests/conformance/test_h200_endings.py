"""How vLLM 0.26 ended on an H200, eight streams open, one finding a check: recorded only.

Here the memory of a real card and the processes of the mp executor and of the Rust front end were watched; what a
machine without a card can show of it is asked in `test_endings.py`. A JSON value a line, `t` in seconds since the blow.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.conformance.endings import DATA

IDLE_MIB = 615
IN_BAND = (
    'data: {"error": {"message": "EngineCore encountered an issue. See stack trace (above) for the root cause.", '
    '"type": "InternalServerError", "param": null, "code": 500}}'
)


@dataclass
class Watched:
    """An ending on the H200: `open` streams began before the blow, `late` ones after it."""

    first: dict[str, Any] = field(default_factory=dict)
    health: list[tuple[float, str]] = field(default_factory=list)
    memory: list[tuple[float, int]] = field(default_factory=list)
    trees: list[tuple[float, dict[str, int]]] = field(default_factory=list)  # living commands and their parents
    open: list[dict[str, Any]] = field(default_factory=list)
    late: list[dict[str, Any]] = field(default_factory=list)
    swept: list[tuple[float, int, int]] = field(default_factory=list)  # memory and processes after killing the group
    exit_code: int = 0

    def saw_s(self, what: str) -> float:
        """When /health was first seen so."""
        return next(at_s for at_s, saw in self.health if saw == what)

    def free_s(self) -> float:
        """When the memory was free."""
        return next(at_s for at_s, mib in self.memory if mib <= IDLE_MIB)

    def gone_s(self) -> float:
        """When no process was left."""
        return next(at_s for at_s, living in self.trees if not living)


def watched(name: str) -> Watched:
    told = Watched()
    for text in (DATA / f"h200-{name}.jsonl").read_text(encoding="utf-8").splitlines():
        line: dict[str, Any] = json.loads(text)
        match str(line["what"]):
            case "processes":
                told.first = line
            case "new connection, GET /health":
                told.health.append((line["t"], str(line["saw"])))
            case "memory":
                told.memory.append((line["t"], line["mib"]))
            case "tree":
                living = {command: parent for _, parent, _, state, command in line["tree"] if state != "Z"}
                told.trees.append((line["t"], living))
            case "stream":
                (told.open if line.get("t_send", 1) < 0 else told.late).append(line)
            case "exit":
                told.exit_code = line["code"]
            case _:
                told.swept.append((line["t"], line["mib"], line["processes"]))
    return told


EVERY = ("sigterm", "drain", "sigkill", "engine-killed", "worker-killed", "rust-sigkill")


@pytest.mark.parametrize("name", EVERY)
def test_all_processes_are_in_the_group_of_the_first_one_and_have_these_names(name: str) -> None:
    tree = watched(name).first["tree"]
    assert {group for _, _, group, _ in tree} == {tree[0][0]}
    commands = [command for *_, command in tree]
    assert commands[:3] == ["python3", "python3", "VLLM::EngineCor"]  # API server, resource tracker, EngineCore
    assert commands[3:] == {"engine-killed": ["VLLM::Worker"], "worker-killed": ["VLLM::Worker"],
                            "rust-sigkill": ["vllm-rs"]}.get(name, [])  # fmt: skip


@pytest.mark.parametrize("name", EVERY)
def test_nvml_names_the_one_process_that_holds_the_memory(name: str) -> None:
    first = watched(name).first
    ((pid, mib),) = first["holders"]
    holder = next(command for own, _, _, command in first["tree"] if own == pid)
    assert holder == ("VLLM::Worker" if name in {"engine-killed", "worker-killed"} else "VLLM::EngineCor")
    assert first["memory_mib"] - mib == pytest.approx(IDLE_MIB, abs=15)


def test_sigterm_leaves_streams_without_a_byte_until_their_clients_give_up() -> None:
    told = watched("sigterm")
    assert len(told.open) == 8
    for stream in told.open:
        assert stream["err"] == "client timeout"
        assert stream["last_byte"] < 0.01
        assert stream["t_end"] > 23
    assert told.saw_s("ConnectionRefusedError") < 0.06
    assert all("ConnectionRefused" in stream["err"] for stream in told.late)
    assert told.free_s() < 0.25
    assert told.exit_code == 0
    assert told.gone_s() - told.open[0]["t_end"] < 0.3


def test_a_drain_lets_streams_end_and_refuses_new_connections_as_0_32_does_not() -> None:
    told = watched("drain")
    assert [stream["usage"]["completion_tokens"] for stream in told.open] == [900] * 8
    assert all(stream["done"] and stream["finish"] == "length" for stream in told.open)
    assert told.saw_s("ConnectionRefusedError") < 0.11
    assert all("ConnectionRefused" in stream["err"] for stream in told.late)
    last_s = max(stream["t_end"] for stream in told.open)
    assert 3 < told.free_s() - last_s < 4
    assert told.gone_s() - told.free_s() < 0.3
    assert told.exit_code == 0


def test_sigkill_of_the_api_process_cuts_streams_at_once_and_orphans_the_memory() -> None:
    told = watched("sigkill")
    assert told.exit_code == -9
    for stream in told.open:
        assert not stream["complete"]
        assert stream["t_end"] < 0.02
        assert "err" not in stream  # closed, not reset
    assert told.trees[-1][1] == {"python3": 1, "VLLM::EngineCor": 1}
    assert told.memory[-1][1] > 130_000


def test_sigkill_under_the_rust_front_end_changes_nothing_for_clients() -> None:
    told = watched("rust-sigkill")
    assert told.exit_code == -9
    assert told.saw_s("200") == 0
    assert told.saw_s("ConnectionRefusedError") > 12  # only when the group was killed
    assert all(stream["status"] == 200 and stream["done"] for stream in told.late)
    assert told.trees[-1][1] == {"python3": 1, "VLLM::EngineCor": 1, "vllm-rs": 1}


@pytest.mark.parametrize("name", ["sigkill", "rust-sigkill"])
def test_killing_the_process_group_frees_the_memory_within_four_tenths_of_a_second(name: str) -> None:
    swept = watched(name).swept
    assert next(at_s for at_s, mib, _ in swept if mib == IDLE_MIB) < 0.4
    assert swept[-1][2] == 0


@pytest.mark.parametrize("name, noticed_s", [("engine-killed", 0.06), ("worker-killed", 0.43)])
def test_a_dead_engine_is_told_in_band_then_done_and_the_server_ends_with_code_0(name: str, noticed_s: float) -> None:
    told = watched(name)
    for stream in told.open:
        assert stream["complete"]
        assert stream["done"]
        assert "finish" not in stream
        assert stream["other"] == [IN_BAND]
        assert stream["t_end"] < noticed_s + 0.02
    assert told.saw_s("503") < noticed_s
    assert told.saw_s("ConnectionRefusedError") < 1.1
    assert told.exit_code == 0


def test_a_killed_engine_core_leaves_its_worker_to_end_by_itself_with_the_memory() -> None:
    told = watched("engine-killed")
    assert any(living.get("VLLM::Worker") == 1 for _, living in told.trees)
    assert 3 < told.free_s() < 3.5
    assert told.trees[-1][1] == {}


def test_a_killed_worker_takes_all_with_it_and_new_requests_have_a_200_before_the_error() -> None:
    told = watched("worker-killed")
    assert told.free_s() < 0.4
    assert told.gone_s() < 1.5
    assert [stream["status"] for stream in told.late] == [200, 500]
    assert told.late[0]["other"] == [IN_BAND]


def test_sigterm_while_loading_is_ignored_by_every_process() -> None:
    lines = [json.loads(text) for text in (DATA / "h200-cancel.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["second"] for line in lines] == [22, 42, 40]
    for line in lines:
        before, after = line["looks"]
        assert [pid for pid, *_ in after[2]] == [pid for pid, *_ in before[2]]
        assert after[1] >= before[1]  # memory is taken all the same
        assert line["exit"] == "-9"  # of the group, in the end
    assert lines[1]["looks"][1][1] > 130_000
