from __future__ import annotations

import re

from msgspec.structs import replace

from gateway.simulator.exposition import Page, Tallies
from gateway.simulator.request import Timing
from tests.fakes.plain_engine import PlainEngine


def value(page: bytes, series: str) -> float:
    found = re.search(rf"^{re.escape(series)} (\S+)$", page.decode(), re.MULTILINE)
    assert found, series
    return float(found[1])


def test_an_ended_answer_is_in_the_histograms() -> None:
    tallies = Tallies()
    timing = Timing(queued_at=0.0, scheduled_at=0.5, first_token_at=1.0, last_token_at=3.0)
    tallies.asked(n=1)
    tallies.ended(timing, prompt_tokens=7, tokens=5, max_tokens=9)
    page = Page("m", created=1.0).render(PlainEngine().counters(), tallies)
    labels = 'engine="0",model_name="m"'
    assert value(page, f"vllm:time_to_first_token_seconds_sum{{{labels}}}") == 1.0
    assert value(page, f"vllm:request_decode_time_seconds_sum{{{labels}}}") == 2.0
    assert value(page, 'vllm:request_prompt_tokens_bucket{engine="0",le="5.0",model_name="m"}') == 0
    assert value(page, 'vllm:request_prompt_tokens_bucket{engine="0",le="10.0",model_name="m"}') == 1


def test_the_gaps_of_open_answers_are_counted_as_they_come() -> None:
    tallies, page, counters = Tallies(), Page("m", created=1.0), PlainEngine().counters()
    labels = 'engine="0",model_name="m"'
    for count, sum_s in ((0, 0.0), (4, 0.1), (4, 0.1), (6, 0.9)):
        told = page.render(replace(counters, inter_token_count=count, inter_token_sum_s=sum_s), tallies)
        assert value(told, f"vllm:inter_token_latency_seconds_count{{{labels}}}") == count
        assert round(value(told, f"vllm:inter_token_latency_seconds_sum{{{labels}}}"), 9) == sum_s
    bounded = value(told, 'vllm:inter_token_latency_seconds_bucket{engine="0",le="0.025",model_name="m"}')
    assert bounded == 4, "0.025 s each; the two after them took 0.4 s each"


def test_a_call_of_a_tool_is_a_stop_to_the_engine() -> None:
    engine = PlainEngine()
    engine.finished = {"tool_calls": 2, "stop": 1}
    page = Page("m", created=1.0).render(engine.counters(), Tallies())
    assert value(page, 'vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"}') == 3


def test_every_family_says_that_it_is_simulated() -> None:
    page = Page("m", created=1.0).render(PlainEngine().counters(), Tallies()).decode()
    helps = [line for line in page.splitlines() if line.startswith("# HELP")]
    assert len(helps) == sum(line.startswith("# TYPE") for line in page.splitlines())
    assert all(line.endswith("simulated.") for line in helps)


def test_the_cache_and_the_preemptions_are_told() -> None:
    counters = replace(
        PlainEngine().counters(),
        prompt_tokens_total=100,
        prefix_queries_total=90,
        prefix_hits_total=32,
        preemptions_total=3,
    )
    tallies = Tallies()
    timing = Timing(
        queued_at=0.0, scheduled_at=0.5, first_token_at=1.0, last_token_at=3.0, cached_tokens=32, preemptions=2
    )
    tallies.ended(timing, prompt_tokens=40, tokens=5, max_tokens=9)
    page = Page("m", created=1.0).render(counters, tallies)
    labels = 'engine="0",model_name="m"'
    for name, expected in [
        ("prefix_cache_queries_total", 90),
        ("prefix_cache_hits_total", 32),
        ("num_preemptions_total", 3),
        ("prompt_tokens_cached_total", 32),
        ("request_prefill_kv_computed_tokens_sum", 8),
        ("request_num_preemptions_sum", 2),
    ]:
        assert value(page, f"vllm:{name}{{{labels}}}") == expected
    sources = {"local_compute": 68, "local_cache_hit": 32, "external_kv_transfer": 0}
    for source, expected in sources.items():
        series = f'vllm:prompt_tokens_by_source_total{{engine="0",model_name="m",source="{source}"}}'
        assert value(page, series) == expected
