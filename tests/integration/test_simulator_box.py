"""What a simulated engine shares with others on its box, what outlives it there, and what a start can meet."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.endings import await_no_holder, holders, lives, metrics
from tests.conformance.targets import SimulatedServer

Start = Callable[..., SimulatedServer]
SMALL = ("--gpu-memory-utilization", "0.4")  # two fit on one card
LONG = " ".join(f"word{at}" for at in range(300))


def ask(server: SimulatedServer, text: str = LONG, **more: Any) -> dict[str, Any]:
    """One whole answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    body = {"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": 20, **more}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer: dict[str, Any] = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def counted(server: SimulatedServer, name: str) -> float:
    """A counter of the metrics page."""
    found = re.search(rf"^vllm:{name}\{{.*\}} (\S+)$", metrics(server.port).decode(), re.MULTILINE)
    assert found, name
    return float(found[1])


def kinds(server: SimulatedServer) -> list[str]:
    return [drift["kind"] for drift in server.control("/state")["drifts"]]


def eventually(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def stopped(server: SimulatedServer) -> None:
    server.process.terminate()
    assert server.process.wait(10) == 0
    await_no_holder(server.card)


# --- the box ---------------------------------------------------------------------------------------------------------


def test_a_restart_finds_the_box_as_it_was_and_the_process_as_new(start: Start) -> None:
    first = start()
    first.control("/drift", {"kind": "power-cap", "magnitude": 0.2})
    first.control("/drift", {"kind": "process-state", "magnitude": 0.2})
    first.control("/wedge", {"gpu": 0, "bytes": 10**9})
    first.control("/xid", {"code": 74, "gpu": 0})
    assert kinds(first) == ["process-state", "power-cap"]
    stopped(first)
    second = start(card=first.card)
    assert kinds(second) == ["power-cap"]
    readings = second.control("/readings")
    assert readings["gpus"][0]["power_limit_w"] < 700
    assert [event["code"] for event in readings["xids"]] == [74]
    mended = second.control("/mend", {})
    assert mended["gpus"][0]["power_limit_w"] == 700
    assert mended["gpus"][0]["memory_used_bytes"] < readings["gpus"][0]["memory_used_bytes"]
    assert mended["xids"] == []
    assert kinds(second) == []


def test_engines_on_one_card_share_what_is_wrong_with_it_and_see_each_other(start: Start) -> None:
    one = start(*SMALL)
    other = start(*SMALL, card=one.card)
    assert [len(gpu["processes"]) for gpu in other.control("/readings")["gpus"]] == [2]
    one.control("/drift", {"kind": "thermal", "magnitude": 0.1})
    one.control("/drift", {"kind": "state-step", "magnitude": -0.04})
    eventually(lambda: kinds(other) == ["thermal"])
    other.control("/drift", {"kind": "thermal", "magnitude": 0})
    eventually(lambda: kinds(one) == ["state-step"])


def test_an_engine_that_nobody_asks_meets_the_strangers_of_its_box(start: Start) -> None:
    one = start(*SMALL)
    other = start(*SMALL, card=one.card)
    one.control("/drift", {"kind": "foreign-traffic", "magnitude": 0.01})
    eventually(lambda: counted(other, "num_requests_running") > 0)


def test_readings_can_be_missing_late_and_wrong_from_now_on_and_after_a_restart(start: Start) -> None:
    first = start()
    assert first.control("/readings")["gpus"][0]["sm_clock_mhz"] == 1980
    first.control("/readings/noise", {"missing": 1.0})
    stopped(first)
    second = start(card=first.card)
    told = second.control("/readings")
    assert told["noise"] == {"missing": 1.0, "late": 0.0, "spurious": 0.0}
    assert told["gpus"][0]["sm_clock_mhz"] is None
    assert told["host"]["cpu_pressure"] is None
    second.control("/readings/noise", {"late": 1.0})
    seen = second.control("/readings")["gpus"][0]
    assert seen["late"]["sm_clock_mhz"] < seen["at"]
    assert "error" in second.control("/readings/noise", {"late": 1.5})


# --- processes -------------------------------------------------------------------------------------------------------


def comm(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()


def test_several_gpus_are_held_by_a_worker_each(start: Start) -> None:
    server = start(preset="kimi-k2.5-int4", load_speed=20_000.0)
    held = holders(server.card)
    assert sorted(holder.gpus for holder in held) == [(gpu,) for gpu in range(8)]
    assert {comm(holder.pid) for holder in held} == {"VLLM::Worker_TP"}
    core = server.control("/state")["core_pid"]
    assert core not in {holder.pid for holder in held}
    assert comm(core) == "VLLM::EngineCor"
    listed = [gpu["processes"] for gpu in server.control("/readings")["gpus"]]
    assert [[process["name"] for process in one] for one in listed] == [[f"VLLM::Worker_TP{gpu}"] for gpu in range(8)]
    stopped(server)


def test_fewer_ranks_hold_fewer_gpus(start: Start) -> None:
    server = start("-tp", "2", preset="minimax-m2.5-fp8", load_speed=20_000.0)
    assert sorted(holder.gpus for holder in holders(server.card)) == [(0,), (1,)]


def test_workers_outlive_their_engine_core_for_some_seconds(start: Start) -> None:
    server = start(preset="kimi-k2.5-int4", load_speed=20_000.0)
    workers = [holder.pid for holder in holders(server.card)]
    os.kill(server.control("/state")["core_pid"], signal.SIGKILL)
    assert server.process.wait(10) == 0
    assert all(lives(pid) for pid in workers)
    await_no_holder(server.card)


def test_a_worker_takes_everybody_along(start: Start) -> None:
    server = start(preset="kimi-k2.5-int4", load_speed=20_000.0)
    os.kill(holders(server.card)[3].pid, signal.SIGKILL)
    assert server.process.wait(10) == 0
    await_no_holder(server.card)


def test_a_killed_server_leaves_engine_core_and_workers(start: Start) -> None:
    server = start(preset="kimi-k2.5-int4", load_speed=20_000.0)
    core = server.control("/state")["core_pid"]
    server.process.kill()
    server.process.wait(10)
    assert len(holders(server.card)) == 8
    assert lives(core)
    os.kill(core, signal.SIGTERM)
    await_no_holder(server.card)


# --- what a start can meet -------------------------------------------------------------------------------------------


def test_a_start_that_hangs_in_nccl_holds_its_memory_ignores_sigterm_and_never_listens(start: Start) -> None:
    first = start(preset="kimi-k2.5-int4", load_speed=20_000.0)
    first.control("/drift", {"kind": "p2p-hang", "magnitude": 1})
    stopped(first)
    debug = {"NCCL_DEBUG": "INFO", "NCCL_P2P_LEVEL": "SYS"}
    hung = start(ready=False, preset="kimi-k2.5-int4", load_speed=20_000.0, card=first.card, environment=debug)
    eventually(lambda: "via P2P" in hung.log.read_text(encoding="utf-8"))
    hung.process.terminate()
    with pytest.raises(TimeoutError):
        await_exit(hung, 1.0)
    assert not hung.answers()
    assert "Loading weights" not in hung.log.read_text(encoding="utf-8")
    readings = hung.control("/readings")["gpus"]
    assert hung.control("/state")["phase"] == "loading"
    assert {(gpu["utilisation"], round(gpu["power_w"])) for gpu in readings} == {(100, 120)}
    assert len(holders(hung.card)) == 8
    hung.kill()
    await_no_holder(hung.card)
    # The same box without peer access comes up.
    start(preset="kimi-k2.5-int4", load_speed=20_000.0, card=first.card)


def await_exit(server: SimulatedServer, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while server.process.poll() is None:
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.02)


@pytest.mark.parametrize("reason", ["injected", "wrong sums"])
def test_garbage_has_the_pace_and_the_shape_of_an_answer_and_no_sense(start: Start, reason: str) -> None:
    sound = start(preset="kimi-k2.5-int4", load_speed=20_000.0)
    right = ask(sound)["choices"][0]["message"]["content"]
    assert right == ask(sound)["choices"][0]["message"]["content"]
    if reason == "injected":
        sound.control("/drift", {"kind": "garbage", "magnitude": 1})
        spoilt = sound
    else:
        sound.control("/drift", {"kind": "ll128-corrupt", "magnitude": 1})
        assert ask(sound)["choices"][0]["message"]["content"] == right  # only a start meets it
        stopped(sound)
        environment = {"NCCL_PROTO": "LL128"}
        spoilt = start(preset="kimi-k2.5-int4", load_speed=20_000.0, card=sound.card, environment=environment)
    answer = ask(spoilt)
    assert answer["usage"]["completion_tokens"] == 20
    wrong = answer["choices"][0]["message"]["content"]
    assert set(wrong.split()).isdisjoint(right.split())


# --- the cache -------------------------------------------------------------------------------------------------------


def test_what_was_found_in_the_cache_is_told_where_the_server_was_started_to_tell(start: Start) -> None:
    server = start("--enable-prompt-tokens-details")
    assert ask(server)["usage"]["prompt_tokens_details"] is None
    tokens = ask(server)["usage"]["prompt_tokens"]
    found = ask(server)["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert found == (tokens - 1) // 16 * 16
    assert ask(server, cache_salt="mine")["usage"]["prompt_tokens_details"] is None
    assert ask(server, cache_salt="")["error"]["param"] == "cache_salt"
    assert counted(server, "prefix_cache_queries_total") == 4 * tokens
    assert counted(server, "prefix_cache_hits_total") == 2 * found
    assert counted(server, "prompt_tokens_total") == 4 * tokens


def test_it_is_not_told_otherwise(start: Start) -> None:
    server = start()
    ask(server)
    assert ask(server)["usage"]["prompt_tokens_details"] is None
    assert counted(server, "prefix_cache_hits_total") > 0


def test_a_small_cache_preempts_and_every_answer_is_whole(start: Start) -> None:
    server = start("--num-gpu-blocks-override", "30")
    answer = ask(server, text="few words", n=4, max_tokens=150, ignore_eos=True)
    assert answer["usage"]["completion_tokens"] == 600
    assert counted(server, "num_preemptions_total") > 0
    assert counted(server, "kv_cache_usage_perc") == 0
    assert "GPU KV cache size: 480 tokens" in server.log.read_text(encoding="utf-8")
