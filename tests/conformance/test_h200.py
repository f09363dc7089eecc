"""What an H200 and vLLM 0.26 taught about streams and pages, one finding a check; beside it what is asked here.

The text of these recordings is noise (random weights). The Rust front end is recorded only: the simulator has none, and
the live tier's engine is built without it.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from gateway.simulator.nccl import resolve
from gateway.simulator.nccl_log import info_lines
from tests.conformance.servers import SimulatedServers
from tests.conformance.targets import Target
from tests.conformance.test_streams import choices_of, deltas_of, events_of, head_comes_alone
from tests.fakes import recordings
from tests.fakes.presets import preset
from tests.fakes.recordings import RecordedEnd, Recording

PAGES = Path(__file__).parents[1] / "data" / "pages"
PYTHON_STREAMS = (
    "q8b-chat-usage", "q8b-chat-contusage", "q8b-chat-nousage", "q8b-chat-nothink", "q8b-chat-tokenids", "q8b-reqid",
    "q06b-qwen3-usage", "q06b-qwen3-nothink", "ds-chat-usage",
)  # fmt: skip
RUST_STREAMS = ("rust-chat-usage", "rust-chat-contusage", "rust-chat-nousage", "rust-chat-nothink", "rust-reqid")


def h200(name: str) -> Recording:
    return recordings.load(f"vllm-0.26-h200/{name}")


def page(front: str, name: str) -> Any:
    """A page of the server with this front end, ``h200`` or ``rust``."""
    return json.loads((PAGES / f"vllm-0.26-{front}-pages.json").read_text(encoding="utf-8"))[name]


# -- both front ends -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*PYTHON_STREAMS, *RUST_STREAMS, "q8b-comp-stream", "rust-comp-stream"])
def test_the_head_comes_alone_within_milliseconds_and_the_first_token_later_recorded(name: str) -> None:
    first, second = h200(name).reads[:2]
    assert first.data.endswith(b"\r\n\r\n")
    assert first.at_s < 0.006
    assert 0.01 < second.at_s < 0.3


def test_the_head_comes_before_any_token(target: Target) -> None:
    assert head_comes_alone(target, "chat-stream-ponder")


@pytest.mark.parametrize("name", ["q8b-chat-contusage", "rust-chat-contusage"])
def test_a_late_event_has_two_tokens_by_continuous_usage_recorded(name: str) -> None:
    """Most events have one; a token that is part of a character has no text of its own and comes with the next."""
    events = events_of(h200(name))
    counts = [event["usage"]["completion_tokens"] for event in events if event["choices"]]
    steps = [later - earlier for earlier, later in pairwise(counts)]
    assert set(steps) <= {0, 1, 2}
    assert steps.count(1) > 0.9 * len(steps)
    assert counts[-1] == events[-1]["usage"]["completion_tokens"] == 200


def test_tokens_are_counted_by_usage_and_never_by_events(target: Target) -> None:
    events = events_of(target.exchange("chat-stream-emoji", stream_options={"include_usage": True}))
    texts = [choice for event in events for choice in event["choices"] if choice["delta"]]
    assert len(texts) - 1 < events[-1]["usage"]["completion_tokens"]


@pytest.mark.parametrize("name", ["q8b-chat-usage", "q06b-qwen3-usage", "ds-chat-usage"])
def test_events_are_fewer_than_tokens_by_split_characters_recorded(name: str) -> None:
    recording = h200(name)
    events = [delta for delta in deltas_of(recording)[1:] if delta]
    tokens = events_of(recording)[-1]["usage"]["completion_tokens"]
    assert 0.95 * tokens < len(events) <= tokens
    assert any(ord(letter) > 127 for delta in events for text in delta.values() for letter in text or "")


@pytest.mark.parametrize("name", ["q8b-cut", "rust-cut"])
def test_a_client_that_hangs_up_has_whole_events_until_then_recorded(name: str) -> None:
    recording = h200(name)
    assert recording.end is RecordedEnd.CLIENT_CLOSED
    assert 1.4 < recording.reads[-1].at_s < 1.6
    assert not any(choice["finish_reason"] for choice in choices_of(recording) if "finish_reason" in choice)
    assert b"[DONE]" not in recording.body
    assert "usage" not in events_of(recording)[-1]


@pytest.mark.parametrize("front", ["h200", "rust"])
def test_a_client_that_hung_up_is_gone_within_a_thirtieth_of_a_second_recorded(front: str) -> None:
    looks = page(front, "running")
    assert [running for at_s, running in looks if 0.1 > at_s > 0.015] == [1.0] * sum(
        0.1 > at > 0.015 for at, _ in looks
    )
    assert all(running == 0 for at_s, running in looks if at_s > 1.53)
    assert any(running == 1 for at_s, running in looks if at_s > 1.47)


# -- the Python front end of 0.26, where it differs from 0.32 --------------------------------------


@pytest.mark.parametrize("name", PYTHON_STREAMS)
def test_the_first_event_of_the_python_front_end_has_role_and_empty_content_recorded(name: str) -> None:
    assert deltas_of(h200(name))[0] == {"role": "assistant", "content": ""}


def test_an_event_is_so_long_and_with_usage_so_much_longer_recorded() -> None:
    def typical(name: str) -> float:
        body = h200(name).body
        return median(len(text) for text in re.findall(rb"data: \{[^\n]*\n\n", body))

    assert typical("q8b-chat-usage") == pytest.approx(219, abs=4)
    assert typical("q8b-chat-contusage") == pytest.approx(290, abs=6)
    assert typical("rust-chat-usage") == pytest.approx(156, abs=4)
    assert typical("rust-chat-contusage") == pytest.approx(257, abs=6)


def test_usage_of_0_26_has_no_details_of_reasoning_recorded() -> None:
    assert list(events_of(h200("q06b-qwen3-usage"))[-1]["usage"]) == [
        "prompt_tokens", "total_tokens", "completion_tokens"
    ]  # fmt: skip


def test_too_many_tokens_are_a_400_with_nearly_the_words_of_0_32_recorded(recorded: Target) -> None:
    then, now = h200("q8b-toolong"), recorded.exchange("error-max-tokens-too-big-stream")
    assert then.status == now.status == 400
    words = re.sub(rb"\d+", b"N", then.body).replace(b"max_model_len=max_total_tokens=N", b"max_model_len=N")
    assert words == re.sub(rb"\d+", b"N", now.body).replace(b"max_model_len=max_total_tokens=N", b"max_model_len=N")


def test_a_page_of_metrics_is_of_fifty_thousand_bytes(target: Target) -> None:
    assert page("h200", "metrics_bytes") == pytest.approx(53_000, rel=0.02)
    assert 40_000 < len(target.exchange("get-metrics").body) < 90_000


# -- the Rust front end ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUST_STREAMS)
def test_the_head_of_the_rust_front_end_recorded(name: str) -> None:
    recording = h200(name)
    assert list(recording.headers) == [
        "content-type", "cache-control", "x-request-id", "connection", "transfer-encoding", "date"
    ]  # fmt: skip
    assert recording.headers["content-type"] == "text/event-stream"
    assert recording.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("name", RUST_STREAMS)
def test_chunks_and_role_of_the_rust_front_end_recorded(name: str) -> None:
    recording = h200(name)
    sizes = re.findall(rb"^([0-9A-Fa-f]+)\r\ndata: ", recording.raw.partition(b"\r\n\r\n")[2], re.MULTILINE)
    assert any(re.search(rb"[A-F]", size) for size in sizes)
    assert not any(re.search(rb"[a-f]", size) for size in sizes)
    assert deltas_of(recording)[0] == {"role": "assistant"}
    assert list(choices_of(recording)[1]) == ["index", "delta"]


def test_the_finish_of_the_rust_front_end_is_an_event_of_its_own_recorded() -> None:
    events = events_of(h200("rust-chat-usage"))
    last, usage = events[-2]["choices"][0], events[-1]
    assert last == {"index": 0, "delta": {}, "finish_reason": "length"}
    assert list(usage["usage"]) == ["prompt_tokens", "total_tokens", "completion_tokens", "prompt_tokens_details"]
    assert "system_fingerprint" not in usage
    theirs = choices_of(h200("q8b-chat-usage"))[-1]
    assert theirs["delta"]
    assert theirs["finish_reason"] == "length"


def test_a_token_that_the_tokenizer_lacks_ends_a_rust_stream_with_an_error_in_band_recorded() -> None:
    recording = h200("rust-toolong")
    assert recording.status == 200
    assert recording.end is RecordedEnd.COMPLETE
    assert recording.body.endswith(
        b'data: {"error":{"message":"tokenizer error: decoding failed: unknown token ID: 100004","type":"server_error",'
        b'"param":null,"code":"server_error"}}\n\ndata: [DONE]\n\n'
    )
    assert b"finish_reason" not in recording.body


def test_the_rust_front_end_takes_more_tokens_than_the_context_has_recorded() -> None:
    recording = h200("rust-toolong")
    assert recording.request_body["max_tokens"] == 40_000
    assert recording.status == 200  # the Python one says 400, above


def test_pages_of_the_rust_front_end_recorded() -> None:
    assert list(json.loads(page("rust", "/version")["body"])) == ["version", "rust_frontend_version"]
    assert list(json.loads(page("h200", "/version")["body"])) == ["version"]
    assert (page("rust", "notfound")["status"], page("rust", "notfound")["body"]) == (404, "")
    assert page("h200", "notfound")["body"] == '{"detail":"Not Found"}'
    wrong = json.loads(page("rust", "badjson")["body"])["error"]
    assert (wrong["type"], wrong["code"]) == ("invalid_request_error", "json_parse_error")
    models = json.loads((PAGES / "vllm-0.26-rust-models.json").read_text(encoding="utf-8"))["data"][0]
    assert models["owned_by"] == "vllm-frontend-rs"
    assert "permission" not in models
    assert all("x-request-id" in page("rust", name)["headers"] for name in ("/health", "/version", "notfound"))


# -- the card --------------------------------------------------------------------------------------


def card(what: str) -> dict[str, Any]:
    """What NVML read of the H200 in this situation."""
    rows = [json.loads(text) for text in (PAGES / "h200-card.jsonl").read_text(encoding="utf-8").splitlines()]
    found: dict[str, Any] = next(row for row in rows if row["what"] == what)
    return found


def test_the_card_shows_whose_memory_it_is_and_whether_it_works_recorded() -> None:
    idle, serving, single, loaded = map(card, ("idle card", "idle server", "one stream", "64 streams and more"))
    assert (idle["used"], idle["procs"]) == (615, [])
    assert (idle["thr"], serving["thr"], single["thr"], loaded["thr"]) == (1, 0, 0, 4)
    assert len(serving["procs"]) == 1
    assert serving["used"] - serving["procs"][0][1] == pytest.approx(615, abs=15)
    assert [row["util"][0] for row in (idle, serving, single, loaded)] == [0, 0, 100, 100]
    assert idle["w"] < serving["w"] < single["w"] < loaded["w"] < 700_000
    assert all(row["pcie"] == [5, 16] for row in (idle, serving, single, loaded))


def test_nccl_tells_the_variables_it_took_and_passes_over_those_it_does_not_know() -> None:
    """Of one rank, made through torch; NCCL_NOT_A_VARIABLE was set there too."""
    shape = r"NCCL INFO (NCCL_\w+ set by environment to \w+\.?)"
    theirs = re.findall(shape, (PAGES / "h200-nccl.txt").read_text(encoding="utf-8"))
    assert "NCCL_P2P_LEVEL set by environment to SYS" in theirs
    assert not any("NOT_A_VARIABLE" in line for line in theirs)
    given = dict(re.findall(r"(NCCL_\w+) set by environment to (\w+)", "\n".join(theirs)))
    asked = given | {"NCCL_DEBUG": "INFO", "NCCL_NOT_A_VARIABLE": "1"}
    lines = info_lines(resolve(preset().box, asked, hidden=7168), asked, host="vm", pid=601)
    ours = re.findall(shape, "\n".join(lines))
    assert set(ours) - {line for line in ours if "NCCL_DEBUG" in line} == set(theirs)


def test_the_simulated_card_reads_as_the_recorded_one(simulated: SimulatedServers) -> None:
    server = simulated.own()
    theirs = card("idle server")
    reading = server.control("/readings")["gpus"][0]
    (process,) = reading["processes"]
    assert process["pid"] == server.core_pid()
    assert (reading["memory_used_bytes"] - process["bytes_held"]) >> 20 == 615
    assert (reading["reasons"], reading["utilisation"]) == (theirs["thr"], theirs["util"][0])
    assert (reading["sm_clock_mhz"], reading["memory_clock_mhz"]) == (theirs["sm"], theirs["mem"])
    assert [reading["pcie_gen"], reading["pcie_width"]] == theirs["pcie"]
    assert 1000 * reading["power_w"] == pytest.approx(theirs["w"], rel=0.05)
