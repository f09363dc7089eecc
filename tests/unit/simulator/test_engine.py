"""The engine machine in virtual time: queue, batch, prompts, ends, counters."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from msgspec.structs import replace

from gateway.simulator.drift import Drift, DriftKind
from gateway.simulator.engine import SimEngine
from gateway.simulator.presets import Preset
from gateway.simulator.request import Channel, Emission, EngineDead, QueueFull, SimRequest
from tests.fakes.presets import engine, forced, load, preset, quiet, run

CALM = quiet(preset())


def served(given: Preset = CALM, **changes: float | None) -> Preset:
    return replace(given, serve=replace(given.serve, **changes))


def text(emissions: list[tuple[float, Emission]]) -> str:
    return "".join(token.text for _, emission in emissions for token in emission.tokens)


def test_the_first_token_comes_after_the_prompt_and_the_rest_at_the_step_time() -> None:
    machine = engine(CALM)
    number = machine.submit(forced(64, prompt=1000), 5.0)
    done = run(machine)
    instants = [at for at, _ in done.of(number)]
    assert 5.12 < instants[0] < 5.25
    gaps = [b - a for a, b in itertools.pairwise(instants)]
    assert max(gaps) - min(gaps) < 1e-4
    assert gaps[0] == pytest.approx(1 / 80.75, rel=0.01)


def test_one_token_an_emission_and_the_marks_of_thinking_among_them() -> None:
    machine = engine(CALM)
    number = machine.submit(forced(40), 0.0)
    emissions = [emission for _, emission in run(machine).of(number)]
    assert [emission.generated_tokens for emission in emissions] == list(range(1, 41))
    first, last = emissions[0], emissions[-1]
    assert first.tokens[0].text == "<think>"
    assert first.tokens[0].channel is Channel.MARKER
    assert last.finish == "length"
    assert last.reasoning_tokens == 18
    channels = Counter(token.channel for emission in emissions for token in emission.tokens)
    assert channels == {Channel.REASONING: 18, Channel.MARKER: 2, Channel.CONTENT: 20}


def test_an_answer_that_ends_by_itself_counts_its_end_token() -> None:
    machine = engine(CALM)
    number = machine.submit(SimRequest(prompt_tokens=10, max_tokens=5000, seed=3), 0.0)
    last = run(machine).of(number)[-1][1]
    assert last.finish == "stop"
    assert last.tokens[-1].text == ""
    assert last.timing is not None
    assert last.timing.queued_at == 0.0


def test_usage_is_exact_for_every_request_and_in_total() -> None:
    machine = engine(CALM)
    done = load(machine, [forced(20 + at, seed=at) for at in range(30)], at_once=7)
    tokens = Counter[int]()
    for _, emission in done.emissions:
        tokens[emission.request_id] += len(emission.tokens)
        assert tokens[emission.request_id] == emission.generated_tokens
    assert [tokens[number] for number in range(1, 31)] == [20 + at for at in range(30)]
    counters = done.counters
    assert counters is not None
    assert counters.generation_tokens_total == sum(tokens.values())
    assert counters.prompt_tokens_total == 30 * 100
    assert counters.finished == {"length": 30}
    assert (counters.running, counters.waiting, counters.kv_cache_usage) == (0, 0, 0)
    assert counters.ttft_count == 30


def test_the_same_seed_gives_the_same_run_and_another_one_other_times_but_the_same_words() -> None:
    def once(seed: int) -> list[tuple[float, Emission]]:
        machine = engine(preset(), seed=seed)
        machine.submit(forced(50), 0.0)
        return run(machine).emissions

    assert once(1) == once(1)
    assert once(1) != once(2)
    assert text(once(1)) == text(once(2))


def test_more_than_the_batch_holds_waits_and_more_than_may_wait_is_refused() -> None:
    machine = engine(served(max_seqs=2, max_queued=3))
    for at in range(2):
        machine.submit(forced(500, seed=at), 0.0)
    run(machine, until=1.0)
    for at in range(3):
        machine.submit(forced(5, seed=at), 1.0)
    assert machine.counters().waiting == 3
    with pytest.raises(QueueFull):
        machine.submit(forced(5), 1.0)
    run(machine, until=2.0)
    assert machine.counters().running == 2
    assert run(machine).counters == machine.counters()
    assert machine.counters().finished == {"length": 5}


def test_the_cache_of_keys_and_values_bounds_the_batch_but_one_always_runs() -> None:
    machine = engine(served(kv_cache_tokens=300))
    for at in range(3):
        machine.submit(forced(100, prompt=400 if at == 2 else 100), 0.0)
    run(machine, until=0.5)
    assert machine.counters().running == 2
    assert machine.counters().waiting == 1
    assert machine.counters().kv_cache_usage > 0.7
    assert run(machine).counters == machine.counters()
    assert machine.counters().finished == {"length": 3}
    assert machine.counters().preemptions_total > 0


def test_long_prompts_are_computed_in_chunks_beside_the_stream_that_runs() -> None:
    machine = engine(CALM, "--max-num-batched-tokens", "1024")
    first = machine.submit(forced(200), 0.0)
    run(machine, until=0.5)
    second = machine.submit(forced(10, prompt=8192), 0.5)
    done = run(machine)
    slow = [b - a for (a, _), (b, _) in zip(done.of(first), done.of(first)[1:], strict=False) if b - a > 0.1]
    assert len(slow) in {8, 9}  # 1024 less what decodes
    assert done.of(second)[0][0] > 0.5 + 8 * 0.1


def test_a_choice_of_n_has_its_own_words_and_ends() -> None:
    machine = engine(CALM)
    number = machine.submit(forced(30, n=3), 0.0)
    done = run(machine)
    answers = [text(done.of(number, choice)) for choice in range(3)]
    assert len(set(answers)) == 3
    assert machine.counters().finished == {"length": 3}


def test_an_answer_that_is_not_streamed_leaves_in_one_piece() -> None:
    machine = engine(CALM)
    number = machine.submit(forced(30, stream=False), 0.0)
    ((_, only),) = run(machine).of(number)
    assert len(only.tokens) == 30
    assert only.finish == "length"


def test_a_stream_interval_of_four_sends_one_then_fours() -> None:
    machine = engine(CALM, "--stream-interval=4")
    number = machine.submit(forced(11), 0.0)
    assert [len(emission.tokens) for _, emission in run(machine).of(number)] == [1, 4, 4, 2]


def test_tokens_are_merged_where_the_front_end_is_the_ceiling() -> None:
    small = quiet(preset("qwen3-8b-h200"))
    few = replace(small, pace=replace(small.pace, frontend_chunks_per_s=4000.0))
    machine = engine(few)
    done = load(machine, [forced(256, seed=at) for at in range(64)], at_once=64)
    sizes = Counter(len(emission.tokens) for _, emission in done.emissions)
    assert sizes[1] < sizes.total() / 2 < sizes[1] + sizes[2] + sizes[3]
    assert sum(size * count for size, count in sizes.items()) == 64 * 256
    assert sizes.total() / done.now < 4400
    assert all(done.of(number)[-1][1].generated_tokens == 256 for number in range(1, 65))


def test_who_leaves_is_gone_at_once_from_queue_prompt_and_batch() -> None:
    machine = engine(served(max_seqs=2))
    ids = [machine.submit(forced(100, prompt=20_000 if at == 1 else 10), 0.0) for at in range(3)]
    run(machine, until=0.1)
    for number in (ids[2], ids[1], ids[0]):
        machine.abort(number, 0.1)
    machine.abort(ids[0], 0.1)
    machine.abort(99, 0.1)
    assert machine.next_at() is None
    counters = machine.counters()
    assert (counters.running, counters.waiting, counters.kv_cache_usage) == (0, 0, 0)
    assert counters.finished == {}


def test_who_leaves_does_not_disturb_the_others() -> None:
    machine = engine(CALM)
    gone, stays = machine.submit(forced(100), 0.0), machine.submit(forced(100, seed=1), 0.0)
    run(machine, until=0.5)
    machine.abort(gone, 0.5)
    done = run(machine)
    assert done.of(gone) == []
    assert done.of(stays)[-1][1].generated_tokens == 100


def test_a_choice_that_ended_before_the_client_left_is_not_counted_twice() -> None:
    machine = engine(served(kv_cache_tokens=10_000))
    number = machine.submit(SimRequest(prompt_tokens=10, max_tokens=400, n=2, seed=5, reasoning_share=0.0), 0.0)
    done = run(machine, until=0.0)
    while not any(emission.finish for _, emission in done.emissions):
        due = machine.next_at()
        assert due is not None
        done = run(machine, until=due)
    machine.abort(number, done.now)
    assert machine.next_at() is None
    machine.submit(forced(9000, prompt=900), done.now)
    assert run(machine, until=done.now + 1).counters is not None
    assert machine.counters().running == 1


def test_a_stop_ends_all_with_the_reason_abort() -> None:
    machine = engine(CALM)
    machine.submit(forced(100), 0.0)
    run(machine, until=0.5)
    machine.submit(forced(100), 0.5)
    last = machine.abort_all(0.5)
    assert [emission.finish for emission in last] == ["abort", "abort"]
    assert machine.next_at() is None
    assert machine.counters().finished == {"abort": 2}


def test_a_stop_tells_nothing_of_what_had_ended() -> None:
    machine = engine(CALM)
    machine.submit(SimRequest(prompt_tokens=10, max_tokens=400, n=2, seed=5, reasoning_share=0.0), 0.0)
    ended = 0
    while not ended:
        due = machine.next_at()
        assert due is not None
        ended = sum(emission.finish is not None for emission in machine.step(due))
    assert len(machine.abort_all(60.0)) == 2 - ended
    assert machine.abort_all(61.0) == []
    assert machine.counters().finished["abort"] == 2 - ended


def test_speculation_brings_several_tokens_a_step() -> None:
    glm = quiet(preset("glm-5-nvfp4"))
    machine = engine(glm)
    number = machine.submit(forced(400), 0.0)
    sizes = Counter(len(emission.tokens) for _, emission in run(machine).of(number))
    assert set(sizes) == {1, 2}
    assert 400 / sizes.total() == pytest.approx(1.75, rel=0.1)
    counters = machine.counters()
    assert counters.accepted_tokens_total / counters.drafts_total == pytest.approx(0.75, abs=0.1)
    assert counters.draft_tokens_total == counters.drafts_total


def test_a_step_is_not_done_before_it_is_due_and_a_stalled_caller_is_not_caught_up_with() -> None:
    machine = engine(CALM)
    machine.submit(forced(10), 0.0)
    due = machine.next_at()
    assert due is not None
    assert machine.step(due - 0.001) == []
    assert machine.step(due) == []  # the prompt begins
    machine.step(100.0)
    later = machine.next_at()
    assert later is not None
    assert later > 100.0


def test_an_idle_engine_does_nothing() -> None:
    machine = engine(CALM)
    assert machine.next_at() is None
    assert machine.step(5.0) == []


def test_a_crash_ends_everything() -> None:
    machine = engine(CALM)
    machine.submit(forced(10), 0.0)
    machine.inject(Drift(kind=DriftKind.CRASH, magnitude=1), 0.1)
    assert machine.dead
    assert machine.next_at() is None
    with pytest.raises(EngineDead):
        machine.submit(forced(10), 0.2)


def test_a_hung_engine_keeps_its_counters_until_it_goes_on() -> None:
    machine = engine(CALM)
    number = machine.submit(forced(30), 0.0)
    run(machine, until=0.2)
    before = machine.counters()
    machine.inject(Drift(kind=DriftKind.HANG, magnitude=1), 0.2)
    machine.submit(forced(5), 0.3)
    assert machine.next_at() is None
    assert machine.counters().generation_tokens_total == before.generation_tokens_total
    assert machine.counters().running == 1
    machine.inject(Drift(kind=DriftKind.HANG, magnitude=0), 60.0)
    assert run(machine).of(number)[-1][1].generated_tokens == 30


def test_a_hang_that_is_taken_back_while_idle_wakes_nobody() -> None:
    machine = engine(CALM)
    machine.inject(Drift(kind=DriftKind.HANG, magnitude=1), 0.2)
    machine.inject(Drift(kind=DriftKind.HANG, magnitude=0), 0.4)
    assert machine.next_at() is None


def test_a_load_event_can_leave_a_lasting_state() -> None:
    given = replace(CALM, noise=replace(CALM.noise, state_chance=1.0, load_event_s=1.0))
    machine = engine(given)
    before = run_single(machine, 0.0)
    load(machine, [forced(128, seed=at) for at in range(64)], at_once=64)
    after = run_single(machine, 1e3)
    assert abs(after / before - 1) == pytest.approx(0.04, abs=0.003)
    assert run_single(machine, 2e3) == pytest.approx(after, rel=0.001)


def test_a_short_load_leaves_nothing_however_long_the_engine_rests_after_it() -> None:
    given = replace(CALM, noise=replace(CALM.noise, state_chance=1.0, load_event_s=100.0))
    machine = engine(given)
    before = run_single(machine, 0.0)
    load(machine, [forced(128, seed=at) for at in range(64)], at_once=64)
    assert run_single(machine, 1e4) == pytest.approx(before, rel=0.001)


def run_single(machine: SimEngine, now: float) -> float:
    number = machine.submit(forced(64), now)
    return 1 / run(machine, now=now).rate(number)
