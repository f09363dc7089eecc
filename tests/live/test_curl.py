"""curl, the client of every first try: streams unbuffered, speaks HTTP/1.0 when told to, asks with HEAD."""

import json
import shutil
import subprocess
import time

import pytest

from tests.live.rig import wire
from tests.live.rig.ways import Served

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def curl(*arguments: str, sent: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["curl", "--silent", "--show-error", "--max-time", "30", *arguments],
        input=sent,
        capture_output=True,
        check=True,
        timeout=40,
    )


def posting(body: dict) -> list[str]:
    return ["--header", "Content-Type: application/json", "--data", json.dumps(body)]


def test_an_unbuffered_stream_is_printed_while_it_grows(served: Served):
    started_s = time.perf_counter()
    with subprocess.Popen(
        ["curl", "-sN", *posting(wire.chat("count please", stream=True)), f"{served.base_url}/chat/completions"],
        stdout=subprocess.PIPE,
    ) as running:
        lines = [(time.perf_counter() - started_s, line) for line in running.stdout if line.strip()]

    assert running.returncode == 0
    assert lines[0][1].startswith(b"data: {")
    assert lines[-1][1] == b"data: [DONE]\n"
    assert lines[0][0] < lines[-1][0] / 2


def test_an_answer_in_one_piece(served: Served):
    answer = json.loads(curl(*posting(wire.chat(max_tokens=8)), f"{served.base_url}/chat/completions").stdout)

    assert answer["usage"]["completion_tokens"] == 8


def test_a_stream_over_http_1_0_ends_by_closing_and_is_whole(served: Served):
    body = wire.chat(max_tokens=8, stream=True)
    done = curl("--http1.0", "--include", *posting(body), f"{served.base_url}/chat/completions")
    head, _, text = done.stdout.partition(b"\r\n\r\n")

    assert b" 200 " in head.splitlines()[0]
    if served.way == "gateway":  # vLLM itself sends chunks to a client that cannot know them
        assert b"transfer-encoding" not in head.lower()
    assert text.startswith(b"data: {")
    assert text.endswith(b"data: [DONE]\n\n")


def test_an_answer_in_one_piece_over_http_1_0(served: Served):
    done = curl("--http1.0", *posting(wire.chat(max_tokens=8)), f"{served.base_url}/chat/completions")

    assert json.loads(done.stdout)["choices"][0]["finish_reason"] == "length"


def test_models_are_listed(served: Served):
    listed = json.loads(curl(f"{served.base_url}/models").stdout)

    assert listed["object"] == "list"
    assert [(model["id"], model["max_model_len"]) for model in listed["data"]] == [("tiny", 2048)]


def test_the_head_of_the_model_list_can_be_asked_for_through_the_gateway(gateway):
    """vLLM itself answers 405 to HEAD; a gateway in front of load balancers should not."""
    done = curl("--head", f"{gateway.url}/v1/models")

    assert b" 200 " in done.stdout.splitlines()[0]


def test_a_large_request_that_waits_for_100_continue_is_answered(served: Served):
    body = wire.chat("hello there " + "x" * 2_000_000, max_tokens=4)
    waiting = ["--header", "Expect: 100-continue", "--header", "Content-Type: application/json", "--data-binary", "@-"]
    done = curl(*waiting, f"{served.base_url}/chat/completions", sent=json.dumps(body).encode())

    assert json.loads(done.stdout)["error"]["code"] == 400  # too long for the model, read to its end all the same
