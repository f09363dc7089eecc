"""Four numbers out of an engine's metrics page, whatever else stands in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.core.routing.reading import EngineReading, generation_tps, has_restarted, parse_metrics

DATA = Path(__file__).parents[3] / "data"
TOKENS = "vllm:generation_tokens_total"


def recorded_body(name: str) -> bytes:
    lines = (DATA / "recordings" / "vllm-0.32-cpu" / name).read_text().splitlines()
    text = "".join(json.loads(line).get("text", "") for line in lines)
    return text.partition("\r\n\r\n")[2].encode()


def tokens(page: str) -> float | None:
    return parse_metrics(page.encode(), read_at=0.0).generation_tokens


def test_a_real_page_of_the_python_server_is_read() -> None:
    page = recorded_body("get-metrics-after.jsonl")
    assert len(page) > 50_000
    assert parse_metrics(page, read_at=3.0) == EngineReading(
        read_at=3.0, generation_tokens=18508.0, running=0.0, waiting=0.0, decode_s=130.0971632040007
    )


def test_a_real_page_of_the_rust_server_is_read() -> None:
    page = (DATA / "pages" / "vllm-0.26-rust-metrics.txt").read_bytes()
    assert parse_metrics(page, read_at=3.0) == EngineReading(
        read_at=3.0, generation_tokens=265419.0, running=0.0, waiting=0.0, decode_s=2461.828299561673
    )


def test_engines_behind_one_server_are_summed() -> None:
    assert tokens(f'{TOKENS}{{engine="0"}} 10\n{TOKENS}{{engine="1"}} 2.5e1\n') == 35.0


@pytest.mark.parametrize(
    "line",
    [
        f"{TOKENS} 7",
        f"{TOKENS}\t7",
        f"{TOKENS}{{}} 7",
        f'{TOKENS}{{model_name="a b",engine="0"}} 7 1796089911',
        f'{TOKENS}{{model_name="odd }} name"}} 7',
        f'{TOKENS}{{model_name="quote \\" and slash \\\\"}} 7',
        f'{TOKENS}{{engine="0"}} 7 # {{trace="x"}} 1.0 2.0',
        f"# HELP {TOKENS} Tokens.\n# TYPE {TOKENS} counter\n{TOKENS} 7",
    ],
)
def test_every_form_of_a_sample_is_understood(line: str) -> None:
    assert tokens(f"other 1\n{line}\n") == 7.0


@pytest.mark.parametrize(
    "page",
    [
        "",
        "<html>not metrics</html>",
        f"# HELP {TOKENS} Tokens.",
        f"{TOKENS}_more 7",
        f"x{TOKENS} 7",
        f"{TOKENS}",
        f"{TOKENS} many",
        f"{TOKENS} NaN",
        f"{TOKENS} +Inf",
        f"{TOKENS} -3",
        f'{TOKENS}{{engine="0 7',
    ],
)
def test_what_is_no_number_is_not_known(page: str) -> None:
    assert tokens(page) is None


def test_a_line_that_cannot_be_read_is_skipped() -> None:
    assert tokens(f'{TOKENS}{{engine="0"}} NaN\n{TOKENS}{{engine="1"}} 4\n') == 4.0


def test_bytes_that_are_no_text_do_not_matter() -> None:
    assert parse_metrics(b"\xff\xfe\x00\n" + f"{TOKENS} 7".encode(), read_at=0.0).generation_tokens == 7.0


def reading(read_at: float, count: float | None) -> EngineReading:
    return EngineReading(read_at=read_at, generation_tokens=count)


def test_the_rate_is_what_was_gained_over_the_time_between() -> None:
    assert generation_tps(reading(10.0, 100.0), reading(12.0, 260.0)) == 80.0
    assert generation_tps(reading(10.0, 100.0), reading(12.0, 100.0)) == 0.0


@pytest.mark.parametrize(
    "before,after",
    [
        (None, reading(1.0, 5.0)),
        (reading(0.0, None), reading(1.0, 5.0)),
        (reading(0.0, 5.0), reading(1.0, None)),
        (reading(1.0, 5.0), reading(1.0, 6.0)),
        (reading(0.0, 5.0), reading(1.0, 4.0)),
    ],
)
def test_there_is_no_rate_without_two_readings_of_one_process(
    before: EngineReading | None, after: EngineReading
) -> None:
    assert generation_tps(before, after) is None


def test_a_counter_that_falls_tells_of_a_new_process() -> None:
    assert has_restarted(reading(0.0, 100.0), reading(2.0, 3.0))
    assert not has_restarted(reading(0.0, 100.0), reading(2.0, 100.0))
    assert not has_restarted(None, reading(2.0, 3.0))
    assert not has_restarted(reading(0.0, None), reading(2.0, 3.0))
    assert not has_restarted(reading(0.0, 100.0), reading(2.0, None))
