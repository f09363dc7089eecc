"""Who gives way when the cache is full, and that nobody's answer shows it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.simulator.engine import SimEngine
from gateway.simulator.kv_cache import BLOCK_TOKENS
from gateway.simulator.presets import Preset, ServeSpec
from gateway.simulator.request import Channel, SimRequest
from gateway.simulator.scheduler import Scheduler
from gateway.simulator.sequence import Sequence
from gateway.simulator.words import counting
from tests.fakes.presets import Run, engine, forced, preset, quiet, run

CALM = quiet(preset())


def small(blocks: int, given: Preset = CALM, **changes: float) -> Preset:
    return replace(given, serve=replace(given.serve, kv_cache_tokens=blocks * BLOCK_TOKENS, **changes))


def sequence(number: int, tokens: int) -> Sequence:
    made = Sequence(forced(prompt=tokens), counting(Channel.CONTENT), request_id=number, choice=0)
    made.context = tokens
    return made


def running(blocks: int, *contexts: int) -> Scheduler:
    """A scheduler whose batch has sequences of these contexts, in order of arrival."""
    made = Scheduler(ServeSpec(max_seqs=16, kv_cache_tokens=blocks * BLOCK_TOKENS), drafts=0)
    for number, context in enumerate(contexts):
        made.queue(sequence(number, context))
    made.schedule(0.0)
    made.join()
    return made


def numbers(sequences: object) -> list[int]:
    return [one.request_id for one in sequences]  # type: ignore[attr-defined] - lists and a deque


def test_those_are_admitted_that_there_is_room_for_now_and_nobody_overtakes() -> None:
    machine = running(10, 80, 64, 48, 16)
    assert numbers(machine.running) == [0, 1]
    assert numbers(machine.waiting) == [2, 3]


def test_who_came_last_gives_way_to_one_that_needs_a_block_and_goes_to_the_head_of_the_queue() -> None:
    machine = running(10, 48, 48, 64)
    machine.queue(sequence(9, 16))
    first = machine.running[0]
    first.context += 1
    machine.short.append(first)
    assert machine.make_room() == 1
    assert numbers(machine.running) == [0, 1]
    assert numbers(machine.waiting) == [2, 9]
    assert machine.waiting[0].preemptions == 1
    assert machine.context_tokens == 96
    assert machine.cache.used == 7


def test_one_that_came_last_itself_gives_way_for_itself() -> None:
    machine = running(10, 80, 80)
    last = machine.running[1]
    last.context += 1
    machine.short.append(last)
    assert machine.make_room() == 1
    assert numbers(machine.running) == [0]
    assert numbers(machine.waiting) == [1]


def test_a_prompt_that_is_being_computed_can_give_way_too() -> None:
    machine = running(10, 80)
    machine.queue(sequence(5, 80))
    machine.schedule(0.0)
    first = machine.running[0]
    first.context += 1
    machine.short.append(first)
    assert machine.make_room() == 1
    assert machine.prefilling == []
    assert numbers(machine.waiting) == [5]


def test_what_gave_way_has_all_its_context_computed_again() -> None:
    machine = engine(small(20), "--no-enable-prefix-caching")
    first, second = machine.submit(forced(200, prompt=100), 0.0), machine.submit(forced(200, prompt=100, seed=1), 0.0)
    done = run(machine)
    counters = machine.counters()
    assert counters.preemptions_total > 0
    (late,) = [emission.timing for _, emission in done.of(second) if emission.timing]
    assert late.preemptions == counters.preemptions_total
    (early,) = [emission.timing for _, emission in done.of(first) if emission.timing]
    assert early.preemptions == 0
    assert counters.prompt_tokens_total == 200  # counted once
    assert counters.ttft_count == 2
    gaps = [b - a for (a, _), (b, _) in zip(done.of(second), done.of(second)[1:], strict=False)]
    assert max(gaps) > 0.5  # it waited for the other to end


def text_of(done: Run, number: int) -> str:
    return "".join(token.text for _, emission in done.of(number) for token in emission.tokens)


def answers(given: Preset, requests: list[SimRequest], *arguments: str) -> tuple[list[str], SimEngine]:
    machine = engine(given, *arguments)
    ids = [machine.submit(request, 0.0) for request in requests]
    done = Run()
    while (due := machine.next_at()) is not None:
        done.emissions.extend((due, emission) for emission in machine.step(due))
        cache = machine.counters().kv_cache_usage
        assert 0 <= cache <= 1
    return [text_of(done, number) for number in ids], machine


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 150), st.integers(1, 80)), min_size=1, max_size=8),
    blocks=st.integers(8, 24),
    name=st.sampled_from(["kimi-k2.5-int4", "glm-5-nvfp4"]),
    interval=st.sampled_from([1, 4]),
)
def test_who_was_preempted_ends_with_the_same_text_and_the_same_counts(
    lengths: list[tuple[int, int]], blocks: int, name: str, interval: int
) -> None:
    given_preset = quiet(preset(name))
    requests = [forced(tokens, prompt=prompt, seed=at) for at, (prompt, tokens) in enumerate(lengths)]
    arguments = [f"--stream-interval={interval}"]
    alone, _ = answers(given_preset, requests, *arguments)
    crowded, machine = answers(small(blocks, given_preset), requests, *arguments)
    assert crowded == alone
    counters = machine.counters()
    assert counters.generation_tokens_total == sum(tokens for _, tokens in lengths)
    assert counters.prompt_tokens_total == sum(prompt for prompt, _ in lengths)
    assert (counters.running, counters.waiting, counters.kv_cache_usage) == (0, 0, 0)
    assert counters.ttft_count == len(lengths)
