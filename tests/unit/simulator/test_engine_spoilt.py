"""Sums that are wrong at some sizes: whose answers they spoil."""

from __future__ import annotations

from msgspec.structs import replace

from gateway.simulator.presets import Preset
from gateway.simulator.request import Channel
from tests.fakes.presets import Run, engine, forced, preset, quiet, run

BAD = ["\ufffd", "!!!!", "ÿÿ", "0x", "ĠĠ", "null", "}{", "aaaaaaaa"]
MIXED = {"NCCL_PROTO": "LL,LL128,Simple"}


def box() -> Preset:
    given = quiet(preset())
    return replace(given, box=replace(given.box, ll128_corrupts=True))


def words_of(done: Run, number: int) -> list[str]:
    tokens = [token for _, emission in done.of(number) for token in emission.tokens]
    return [token.text.strip() for token in tokens if token.channel is not Channel.MARKER]


def test_one_short_prompt_is_right_and_one_that_makes_nccl_take_ll128_is_garbage() -> None:
    machine = engine(box(), environment=MIXED)
    short, long = machine.submit(forced(40, prompt=20), 0.0), machine.submit(forced(40, prompt=600), 100.0)
    done = run(machine)
    assert not any(word in BAD for word in words_of(done, short))
    assert len(words_of(done, long)) > 30
    assert all(word in BAD for word in words_of(done, long))


def test_a_batch_that_makes_nccl_take_ll128_spoils_what_it_computes_from_then_on() -> None:
    machine = engine(box(), environment=MIXED)
    first = machine.submit(forced(2000, prompt=20), 0.0)
    while (due := machine.next_at()) is not None and due < 2.0:
        machine.step(due)
    for at in range(150):
        machine.submit(forced(400, prompt=20, seed=at), 2.0)
    words = words_of(run(machine, now=2.0), first)
    assert words[0] not in BAD
    assert words[-1] in BAD


def test_without_ll128_nothing_is_spoilt() -> None:
    machine = engine(box())
    number = machine.submit(forced(40, prompt=600), 0.0)
    assert not any(word in BAD for word in words_of(run(machine), number))
