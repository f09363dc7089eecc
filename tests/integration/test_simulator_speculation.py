"""What an answer tells of its drafts, where the server was started to tell it."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.simulator import extras
from tests.conformance.targets import SimulatedServer

DRAFTS = ("--speculative-config", '{"num_speculative_tokens": 3}')
TIMES = "time_to_first_token_ms"


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[SimulatedServer]:
    started = SimulatedServer(*request.param)
    started.await_ready()
    yield started
    started.kill()


def asked(server: SimulatedServer, **more: Any) -> str:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 40, "ignore_eos": True}
    url = f"http://127.0.0.1:{server.port}/v1/chat/completions"
    data = json.dumps(body | more).encode()
    whole = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(whole, timeout=20) as answer:
        text: str = answer.read().decode()
    return text


def streamed(server: SimulatedServer) -> dict[str, Any]:
    """The metrics in a stream's last event."""
    text = asked(server, stream=True, stream_options={"include_usage": True})
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    told: dict[str, Any] = events[-1]["metrics"]
    return told


@pytest.mark.parametrize(
    "server",
    [(*DRAFTS, "--enable-per-request-metrics", "--per-request-spec-decode-metrics", "detailed")],
    indirect=True,
)
def test_an_answer_tells_of_each_step_with_drafts(server: SimulatedServer) -> None:
    for metrics in (json.loads(asked(server))["metrics"], streamed(server)):
        assert metrics[TIMES] > 0
        told = metrics["speculative_decoding"]
        assert told["num_spec_tokens"] == 3
        assert told["num_spec_steps"] == len(told["per_step_accepted"]) == sum(told["acceptance_histogram"])
        assert told["per_step_drafted"] == [3] * told["num_spec_steps"]
        assert told["num_draft_tokens"] == 3 * told["num_spec_steps"]
        # The first token has no drafts; the last step may make more than the limit lets out.
        assert 39 <= told["num_spec_steps"] + told["num_accepted_draft_tokens"] <= 42
    assert json.loads(asked(server, n=2))["metrics"] is None


@pytest.mark.parametrize("server", [(*DRAFTS, "--per-request-spec-decode-metrics", "summary")], indirect=True)
def test_without_the_other_metrics_only_the_drafts_are_told(server: SimulatedServer) -> None:
    whole = json.loads(asked(server))["metrics"]
    assert whole[TIMES] is None
    assert whole["speculative_decoding"]["per_step_accepted"] is None
    stream = streamed(server)
    assert list(stream) == ["speculative_decoding"]
    assert "per_step_accepted" not in stream["speculative_decoding"]


@pytest.mark.parametrize("server", [(*DRAFTS, "--enable-per-request-metrics")], indirect=True)
def test_nothing_is_told_where_nobody_asked_for_it(server: SimulatedServer) -> None:
    assert json.loads(asked(server))["metrics"]["speculative_decoding"] is None


def test_the_figures_are_those_of_vllm() -> None:
    told = extras.drafting([2, 0, 1], draft_tokens=2, detailed=False)
    assert told["acceptance_histogram"] == [1, 1, 1]
    assert (told["mean_acceptance_length"], told["draft_acceptance_rate"]) == (2.0, 0.5)
    assert extras.drafting([], draft_tokens=2, detailed=True)["mean_acceptance_length"] == 1.0
