"""What was found about a serving engine beyond single answers: queues, merged tokens, keys, keep-alive, the start.

It needs servers of its own, or a crowd, so it asks the simulator; where a real engine was recorded, that is checked
beside it.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from tests.conformance.endings import DATA, await_running, metrics
from tests.conformance.targets import VARIANTS, SimulatedServer, Target, exchange, raw_request, read_answer
from tests.conformance.test_streams import events_of
from tests.fakes import recordings

Start = Callable[..., SimulatedServer]
LONG = {"max_tokens": 1900, "ignore_eos": True}


@pytest.fixture
def ready() -> Iterator[Start]:
    """Start simulated servers of these arguments and wait until they serve."""
    started: list[SimulatedServer] = []

    def begin(*arguments: str, speed: float = 1.0, load_speed: float = 2000.0) -> SimulatedServer:
        server = SimulatedServer(*VARIANTS["base"], *arguments, speed=speed, load_speed=load_speed)
        started.append(server)
        server.await_ready()
        return server

    yield begin
    for server in started:
        server.kill()


def test_a_queued_request_has_its_head_at_once_and_no_event_while_it_waits(ready: Start) -> None:
    server = ready("--max-num-seqs", "1")
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
            assert re.search(rb"^vllm:num_requests_waiting\{.*\} 1.0$", metrics(server.port), re.MULTILINE)
            running.close()
            reads, _ = read_answer(waiting)
    assert reads[0].data


QUEUE_FULL = ("queue-full-chat", "queue-full-responses", "queue-full-messages", "queue-full-count-tokens")


def test_admission_counts_what_runs_and_refuses_with_the_recorded_503_before_any_byte_of_an_answer(
    ready: Start, recorded: Target
) -> None:
    server = ready("--max-num-seqs", "1", "--max-num-queued-reqs", "2")
    first, _ = raw_request("chat-stream-count", **LONG)
    with (
        socket.create_connection(("127.0.0.1", server.port), 5) as running,
        socket.create_connection(("127.0.0.1", server.port), 5) as waiting,
    ):
        running.sendall(first)
        await_running(server.port, 1)
        waiting.sendall(first)
        assert waiting.recv(65536)
        for name in QUEUE_FULL:
            answer, theirs = exchange(server.port, name), recorded.exchange(name)
            assert (answer.status, answer.body) == (503, theirs.body)
            assert list(answer.headers) == list(theirs.headers)
    assert b'reason="max_num_queued_reqs"} 4.0' in metrics(server.port)


def test_a_backlog_of_prompts_without_an_answer_is_refused_too(ready: Start) -> None:
    server = ready("--max-num-seqs", "1", "--max-num-queued-tokens", "5")
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


def test_tokens_are_merged_when_the_front_end_is_the_ceiling_and_none_is_lost(ready: Start) -> None:
    server = ready()
    data, _ = raw_request(
        "chat-stream-continuous-usage", max_tokens=60, ignore_eos=True, chat_template_kwargs={"enable_thinking": False}
    )
    clients = [socket.create_connection(("127.0.0.1", server.port), 5) for _ in range(250)]
    for client in clients:
        client.sendall(data)
    held: Counter[int] = Counter()
    for client in clients:
        client.settimeout(30)
        whole = b"".join(read.data for read in read_answer(client)[0])
        client.close()
        counts = [int(count) for count in re.findall(rb'"completion_tokens":(\d+)', whole)]
        assert counts[-1] == 60
        held.update(later - earlier for earlier, later in pairwise(counts))
    assert max(held) > 1


def test_a_key_protects_the_api_and_nothing_else(ready: Start) -> None:
    server = ready("--api-key", "secret")
    assert exchange(server.port, "chat-stream-plain").status == 401
    assert exchange(server.port, "get-models").status == 401
    assert exchange(server.port, "get-health").status == 200
    assert exchange(server.port, "get-metrics").status == 200
    data, _ = raw_request("get-models")
    with socket.create_connection(("127.0.0.1", server.port), 5) as client:
        client.sendall(data.replace(b"Host:", b"Authorization: Bearer secret\r\nHost:"))
        assert client.recv(65536).startswith(b"HTTP/1.1 200 OK")


def test_a_kept_connection_is_closed_after_five_seconds(ready: Start) -> None:
    server = ready()
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


def test_request_ids_are_told_where_the_server_was_asked_to(ready: Start) -> None:
    server = ready("--enable-request-id-headers")
    theirs = recordings.load("vllm-0.26-h200/q8b-reqid")
    ours = exchange(server.port, "chat-stream-request-id")
    assert theirs.headers["x-request-id"] == "gw-0001"
    assert ours.headers["x-request-id"] == "abc-123"
    order = [name for name in theirs.headers if name != "connection"]
    assert list(ours.headers) == order
    assert exchange(server.port, "get-health").headers["x-request-id"]


def test_a_stop_string_is_held_back_and_not_told(ready: Start) -> None:
    server = ready(speed=8.0)
    answer = exchange(server.port, "chat-stream-count", stop=["1 12"], max_tokens=400,
                      chat_template_kwargs={"enable_thinking": False})  # fmt: skip
    events = events_of(answer)
    text = "".join(c["delta"].get("content") or "" for event in events for c in event["choices"])
    assert text.endswith(" 10 1")
    assert events[-2]["choices"][0]["stop_reason"] == "1 12"
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    await_running(server.port, 0)


def test_a_client_that_does_not_read_gets_merged_tokens_and_all_of_them(ready: Start) -> None:
    server = ready(speed=50.0)
    data, _ = raw_request(
        "chat-stream-continuous-usage", max_tokens=1900, ignore_eos=True, logprobs=True, top_logprobs=20
    )
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(20)
        client.connect(("127.0.0.1", server.port))
        client.sendall(data)
        await_running(server.port, 1)
        await_running(server.port, 0)
        whole = b"".join(read.data for read in read_answer(client)[0])
    assert re.findall(rb'"completion_tokens":(\d+)', whole)[-1] == b"1900"
    assert whole.count(b"data: {") < 1900


# The lines of a start that a reader of logs goes by, in the order of the H200's.
MARKS = (
    r"Resolved architecture: \w+", r"Initializing a V1 LLM engine \(v", r"world_size=\d+ rank=0",
    r"Starting to load model", r"Loading safetensors checkpoint shards:\s+0% Completed \| 0/\d+",
    r"Loading safetensors checkpoint shards: 100% Completed \| (\d+)/\1", r"Loading weights took [\d.]+ seconds",
    r"Model loading took [\d.]+ GiB memory and [\d.]+ seconds", r"Dynamo bytecode transform time: [\d.]+ s",
    r"torch.compile took [\d.]+ s in total", r"GPU KV cache size: [\d,]+ tokens",
    r"Capturing CUDA graphs \(mixed prefill-decode, PIECEWISE\):\s+0%\|", r"Capturing CUDA graphs \(decode, FULL\): 100%\|",
    r"Graph capturing finished in \d+ secs", r"Kernel JIT monitor activated",
    r"init engine \(profile, create kv cache, warmup model\) took [\d.]+ s", r"Starting vLLM server on http://",
    r"Started server process \[\d+\]", r"Application startup complete\.",
)  # fmt: skip


def test_a_start_prints_the_marks_of_a_real_one_in_their_order(ready: Start) -> None:
    server = ready()
    text = server.log.read_text(encoding="utf-8")
    assert "SIMULATION" in text.splitlines()[0]
    at = 0
    for mark in MARKS:
        found = re.search(mark, text[at:])
        assert found, mark
        at += found.start()
    assert re.search(r"^\(EngineCore pid=\d+\) INFO \d\d-\d\d \d\d:\d\d:\d\d \[core.py:\d+\] ", text, re.MULTILINE)
    assert b"\r" in server.log.read_bytes()  # a bar's updates end no line


def test_injected_drift_slows_it_and_shows_in_the_readings(ready: Start) -> None:
    server = ready()
    calm = server.control("/readings")
    assert calm["simulation"] is True
    assert calm["gpus"][0]["memory_used_bytes"] > 1 << 36
    server.control("/drift", {"kind": "co-tenant", "magnitude": 0.5})
    robbed = server.control("/readings")
    assert len(robbed["gpus"][0]["processes"]) == len(calm["gpus"][0]["processes"]) + 1
    assert server.control("/state")["drifts"][0]["kind"] == "co-tenant"
