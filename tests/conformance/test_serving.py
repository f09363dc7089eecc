"""What was found about a serving engine beyond single answers: queues, merged tokens, keys, keep-alive, the start.

Where a real engine was recorded, that is checked beside it.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections import Counter
from itertools import pairwise

import pytest

from tests.conformance.endings import DATA, await_running, metrics, value_of
from tests.conformance.servers import Lender, SimulatedServers
from tests.conformance.targets import Target, exchange, raw_request, read_answer
from tests.conformance.test_streams import events_of
from tests.fakes import recordings

LONG = {"max_tokens": 1900, "ignore_eos": True}


def test_a_queued_request_has_its_head_at_once_and_no_event_while_it_waits(servers: Lender) -> None:
    server = servers.shared("queued", speed=1.0)
    first, _ = raw_request("chat-stream-count", **LONG)
    second, _ = raw_request("queued-chat")
    with socket.create_connection(("127.0.0.1", server.port), 5) as running:
        running.sendall(first)
        await_running(server.port, 1)
        with socket.create_connection(("127.0.0.1", server.port), 5) as waiting:
            waiting.sendall(second)
            head = waiting.recv(65536)
            assert head.startswith(b"HTTP/1.1 200 OK")
            assert head.endswith(b"\r\n\r\n")
            await_running(server.port, 1, series="vllm:num_requests_waiting")
            running.close()
            reads, _ = read_answer(waiting)
    assert reads[0].data
    await_running(server.port, 0)


QUEUE_FULL = ("queue-full-chat", "queue-full-responses", "queue-full-messages", "queue-full-count-tokens")


def test_admission_counts_who_runs_and_who_waits_and_refuses_with_the_recorded_503(
    servers: Lender, recorded: Target
) -> None:
    """``--max-num-queued-reqs 2``; a request with ``n`` counts ``n`` times."""
    server = servers.shared("queued", speed=1.0)
    rejections = 'vllm:admission_rejections_total{model_name="tiny",reason="max_num_queued_reqs"}'
    before = value_of(metrics(server.port), rejections)
    first, _ = raw_request("chat-stream-count", **LONG)
    with socket.create_connection(("127.0.0.1", server.port), 5) as running:
        running.sendall(first)
        await_running(server.port, 1)
        of_two = exchange(server.port, "chat-stream-n2")
        with socket.create_connection(("127.0.0.1", server.port), 5) as waiting:
            waiting.sendall(first)
            assert waiting.recv(65536).startswith(b"HTTP/1.1 200 OK")
            refused = {name: exchange(server.port, name) for name in QUEUE_FULL}
            unknown = exchange(server.port, "error-bad-model")
    assert (of_two.status, of_two.body) == (503, recorded.exchange("queue-full-chat").body)
    for name, answer in refused.items():
        theirs = recorded.exchange(name)
        assert (answer.status, answer.body, list(answer.headers)) == (503, theirs.body, list(theirs.headers))
    assert unknown.status == 404
    assert value_of(metrics(server.port), rejections) == before + 5
    await_running(server.port, 0)


def test_load_counts_nothing_unless_the_server_was_told_to(servers: Lender) -> None:
    server = servers.shared("queued", speed=1.0)
    data, _ = raw_request("chat-stream-count", **LONG)
    with socket.create_connection(("127.0.0.1", server.port), 5) as client:
        client.sendall(data)
        await_running(server.port, 1)
        assert exchange(server.port, "get-load-untracked").body == b'{"server_load":0}'
    await_running(server.port, 0)


def test_a_backlog_of_prompts_without_an_answer_is_refused_too(simulated: SimulatedServers) -> None:
    """``--max-num-queued-tokens``, known from the source alone: a real prefill here is over at once."""
    server = simulated.told("--max-num-seqs", "1", "--max-num-queued-tokens", "5")
    first, _ = raw_request("chat-stream-count", **LONG)
    with (
        socket.create_connection(("127.0.0.1", server.port), 5) as running,
        socket.create_connection(("127.0.0.1", server.port), 5) as waiting,
    ):
        running.sendall(first)
        seen = b""
        while b"delta" not in seen:  # a prompt with an answer is no backlog
            seen += running.recv(65536)
        waiting.sendall(first)
        assert waiting.recv(65536)
        answer = exchange(server.port, "chat-stream-plain")
    assert answer.status == 503
    assert b"prefill token backlog limit. Please try again later" in answer.body


def test_tokens_are_merged_under_load_recorded() -> None:
    told = json.loads((DATA / "result-tokens-per-event.json").read_text(encoding="utf-8"))
    assert list(told["32_streams"]["tokens_per_event_histogram"]) == ["1"]
    assert max(map(int, told["100_streams"]["tokens_per_event_histogram"])) == 5


def test_tokens_are_merged_when_the_front_end_is_the_ceiling_and_none_is_lost(servers: Lender) -> None:
    server = servers.shared(speed=1.0)
    data, _ = raw_request(
        "chat-stream-continuous-usage", max_tokens=60, ignore_eos=True, chat_template_kwargs={"enable_thinking": False}
    )
    clients = [socket.create_connection(("127.0.0.1", server.port), 5) for _ in range(250)]
    for client in clients:
        client.sendall(data)
    held: Counter[int] = Counter()
    for client in clients:
        client.settimeout(60)
        whole = b"".join(read.data for read in read_answer(client)[0])
        client.close()
        counts = [int(count) for count in re.findall(rb'"completion_tokens":(\d+)', whole)]
        assert counts[-1] == 60
        held.update(later - earlier for earlier, later in pairwise(counts))
    assert max(held) > 1


def test_a_kept_connection_is_closed_after_five_seconds(servers: Lender) -> None:
    server = servers.shared()
    data, _ = raw_request("get-health")
    with socket.create_connection(("127.0.0.1", server.port), 5) as client:
        client.settimeout(10)
        client.sendall(data)
        assert client.recv(65536)
        client.sendall(data)
        assert client.recv(65536)
        began = time.monotonic()
        assert client.recv(65536) == b""
        assert time.monotonic() - began > 4.5


def test_a_stop_string_is_held_back_and_not_told(servers: Lender) -> None:
    server = servers.shared()
    answer = exchange(server.port, "chat-stream-count", stop=["1 12"], max_tokens=400,
                      chat_template_kwargs={"enable_thinking": False})  # fmt: skip
    events = events_of(answer)
    text = "".join(c["delta"].get("content") or "" for event in events for c in event["choices"])
    assert text.endswith(" 10 1")
    assert events[-2]["choices"][0]["stop_reason"] == "1 12"
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    await_running(server.port, 0)


def test_a_client_that_does_not_read_gets_merged_tokens_and_all_of_them(servers: Lender) -> None:
    server = servers.shared(speed=50.0)
    data, _ = raw_request(
        "chat-stream-continuous-usage", max_tokens=1900, ignore_eos=True, logprobs=True, top_logprobs=20
    )
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(60)
        client.connect(("127.0.0.1", server.port))
        client.sendall(data)
        await_running(server.port, 1)
        await_running(server.port, 0, within_s=60)
        whole = b"".join(read.data for read in read_answer(client)[0])
    assert re.findall(rb'"completion_tokens":(\d+)', whole)[-1] == b"1900"
    assert whole.count(b"data: {") < 1900


@pytest.mark.parametrize("name", ["chat-stream-count", "chat-nonstream"])
def test_a_client_that_leaves_frees_its_place_and_is_no_finished_request(servers: Lender, name: str) -> None:
    server = servers.shared(speed=1.0)
    finished = 'vllm:request_success_total{engine="0",finished_reason="abort",model_name="tiny"}'
    before = value_of(metrics(server.port), finished)
    data, _ = raw_request(name, **LONG)
    with socket.create_connection(("127.0.0.1", server.port), 5) as client:
        client.sendall(data)
        await_running(server.port, 1)
        assert exchange(server.port, "get-load").body == b'{"server_load":1}'
    left = time.monotonic()
    await_running(server.port, 0)
    assert time.monotonic() - left < 1  # 0.05 s on a quiet machine
    page = metrics(server.port)
    assert value_of(page, finished) == before
    assert value_of(page, "vllm:kv_cache_usage_perc") == 0
    assert exchange(server.port, "get-load").body == b'{"server_load":0}'


@pytest.mark.parametrize("name", ["client-disconnect"])
def test_a_client_that_left_was_gone_within_a_twentieth_of_a_second_recorded(name: str) -> None:
    lines = [json.loads(text) for text in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
    assert all(line["abort_total"] == 0 for line in lines if "abort_total" in line)
    told = [line["what"] for line in lines if "fell to 0" in line["what"]]
    assert [float(re.findall(r"[\d.]+", words)[1]) for words in told] == pytest.approx([0.046, 0.046], abs=0.006)


def test_a_key_protects_the_api_and_nothing_else(servers: Lender) -> None:
    server = servers.shared("guarded")
    for name in ("chat-stream-plain", "get-models"):
        refused = exchange(server.port, name)
        assert (refused.status, refused.body) == (401, b'{"error":"Unauthorized"}')
        assert list(refused.headers) == ["date", "server", "content-length", "content-type", "x-request-id"]
    for name in ("get-health", "get-metrics", "get-version", "tokenize"):
        assert exchange(server.port, name).status == 200
    for name in ("get-models", "chat-stream-plain"):
        assert exchange(server.port, name, key=server.key).status == 200
    assert exchange(server.port, "get-models", key="another").status == 401


def test_request_ids_are_told_where_the_server_was_asked_to(servers: Lender) -> None:
    server = servers.shared("guarded")
    theirs = recordings.load("vllm-0.26-h200/q8b-reqid")
    ours = exchange(server.port, "chat-stream-request-id", key=server.key)
    assert theirs.headers["x-request-id"] == "gw-0001"
    assert ours.headers["x-request-id"] == "abc-123"
    order = [name for name in theirs.headers if name != "connection"]
    assert list(ours.headers) == order
    assert re.fullmatch("[0-9a-f]{32}", exchange(server.port, "get-health").headers["x-request-id"])
    assert exchange(server.port, "error-bad-model", key=server.key).headers["x-request-id"]


def test_injected_drift_slows_it_and_shows_in_the_readings(simulated: SimulatedServers) -> None:
    server = simulated.own()
    calm = server.control("/readings")
    assert calm["simulation"] is True
    assert calm["gpus"][0]["memory_used_bytes"] > 1 << 36
    server.control("/drift", {"kind": "co-tenant", "magnitude": 0.5})
    robbed = server.control("/readings")
    assert len(robbed["gpus"][0]["processes"]) == len(calm["gpus"][0]["processes"]) + 1
    assert server.control("/state")["drifts"][0]["kind"] == "co-tenant"
