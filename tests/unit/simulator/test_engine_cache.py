"""Prompts that were computed before: what they cost, what is counted, and the first logprobs."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from gateway.simulator.engine import SimEngine
from gateway.simulator.prefix import block_keys
from gateway.simulator.request import SimRequest, Timing
from tests.fakes.presets import engine, forced, preset, quiet, run

H200 = quiet(preset("qwen3-8b-h200"))


def asked(tokens: int, *, of: str = "w", salt: str = "", answer: int = 8, **more: bool) -> SimRequest:
    keys = block_keys([f"{of}{at}" for at in range(tokens)], salt=salt)
    return replace(forced(answer, prompt=tokens), prefix=keys, **more)


def first_s(machine: SimEngine, request: SimRequest, now: float) -> float:
    """The time to the first token of a request that is alone."""
    number = machine.submit(request, now)
    return run(machine, now=now).of(number)[0][0] - now


def ended(machine: SimEngine, request: SimRequest, now: float) -> Timing:
    number = machine.submit(request, now)
    timing = run(machine, now=now).of(number)[-1][1].timing
    assert timing is not None
    return timing


@pytest.mark.parametrize("tokens, recorded_s", [(128, 0.0175), (4096, 0.11), (8192, 0.223), (16_384, 0.53)])
def test_a_first_token_comes_when_it_was_recorded(tokens: int, recorded_s: float) -> None:
    assert first_s(engine(H200), asked(tokens), 0.0) == pytest.approx(recorded_s, rel=0.1)


@pytest.mark.parametrize("tokens, recorded_s", [(4096, 0.0275), (16_384, 0.045)])
def test_a_repeated_prompt_has_its_first_token_as_soon_as_was_recorded(tokens: int, recorded_s: float) -> None:
    machine = engine(H200)
    first_s(machine, asked(tokens), 0.0)
    assert first_s(machine, asked(tokens), 10.0) == pytest.approx(recorded_s, rel=0.12)


def test_hits_and_queries_are_counted_in_tokens_of_whole_blocks() -> None:
    machine = engine(H200)
    assert ended(machine, asked(1000), 0.0).cached_tokens == 0
    assert ended(machine, asked(1000), 10.0).cached_tokens == 992
    counters = machine.counters()
    assert (counters.prefix_queries_total, counters.prefix_hits_total) == (2000, 992)
    assert counters.prompt_tokens_total == 2000


@pytest.mark.parametrize("other", [{"of": "x"}, {"salt": "mine"}])
def test_another_prompt_or_another_salt_finds_nothing(other: dict[str, str]) -> None:
    machine = engine(H200)
    ended(machine, asked(1000), 0.0)
    assert ended(machine, asked(1000, **other), 10.0).cached_tokens == 0


def test_a_longer_prompt_finds_what_it_has_in_common() -> None:
    machine = engine(H200)
    ended(machine, asked(500), 0.0)
    assert ended(machine, asked(2000), 10.0).cached_tokens == 496


def test_the_choices_of_one_request_share_their_prompt() -> None:
    machine = engine(H200)
    machine.submit(replace(asked(1000), n=3), 0.0)
    run(machine)
    assert machine.counters().prefix_hits_total == 2 * 992


def test_switched_off_it_finds_nothing_and_asks_nothing() -> None:
    machine = engine(H200, "--no-enable-prefix-caching")
    fresh_s = first_s(machine, asked(4096), 0.0)
    assert first_s(machine, asked(4096), 10.0) == pytest.approx(fresh_s)
    counters = machine.counters()
    assert (counters.prefix_queries_total, counters.prefix_hits_total) == (0, 0)


def test_a_cache_that_is_needed_by_others_forgets() -> None:
    machine = engine(H200, "--num-gpu-blocks-override", "100")
    ended(machine, asked(1000), 0.0)
    ended(machine, asked(1400, of="x"), 10.0)
    assert ended(machine, asked(1000), 20.0).cached_tokens < 300


def test_a_prompt_that_is_still_being_computed_can_be_found_as_far_as_it_is() -> None:
    machine = engine(H200, "--max-num-batched-tokens", "1024")
    first = machine.submit(asked(8192, answer=200), 0.0)
    run(machine, until=0.1)
    second = machine.submit(asked(8192), 0.1)
    done = run(machine)
    found = [done.of(number)[-1][1].timing for number in (first, second)]
    assert found[0] is not None
    assert found[1] is not None
    assert 0 == found[0].cached_tokens < found[1].cached_tokens < 8192


def test_the_first_logprobs_make_everybody_wait_once() -> None:
    machine = engine(H200)
    beside = machine.submit(forced(400), 0.0)
    run(machine, until=0.5)
    first = machine.submit(asked(20, logprobs=True), 0.5)
    done = run(machine)
    assert done.of(first)[0][0] - 0.5 == pytest.approx(2.0, abs=0.1)
    instants = [at for at, _ in done.of(beside)]
    assert max(b - a for a, b in itertools.pairwise(instants)) == pytest.approx(2.0, abs=0.05)
    assert first_s(machine, asked(20, logprobs=True), 50.0) < 0.03
