"""Arguments of vLLM that change the simulated engine."""

from __future__ import annotations

import pytest

from gateway.simulator.arguments import BadArgument, configured, custom_allreduce, find
from tests.fakes.presets import preset

GIVEN = preset()


def test_limits_are_taken_in_both_spellings_and_the_last_one_counts() -> None:
    made = configured(
        GIVEN, ["--max-num-seqs", "8", "--stream-interval=4", "--max-num-seqs=9", "--max-model-len", "4096"]
    )
    assert (made.serve.max_seqs, made.serve.stream_interval, made.model.max_model_len) == (9, 4, 4096)
    assert configured(GIVEN, ["--max-num-queued-reqs", "3"]).serve.max_queued == 3


def test_what_it_does_not_know_changes_nothing() -> None:
    assert configured(GIVEN, ["--enable-prefix-caching", "--tensor-parallel-size", "8"]) == GIVEN


@pytest.mark.parametrize("arguments", [["--max-num-seqs", "many"], ["--max-num-seqs=0"], ["--max-num-seqs"]])
def test_a_number_that_is_none_is_an_error(arguments: list[str]) -> None:
    with pytest.raises(BadArgument, match="--max-num-seqs"):
        configured(GIVEN, arguments)


def test_speculation_is_switched_by_its_configuration() -> None:
    made = configured(GIVEN, ["--speculative-config", '{"num_speculative_tokens": 3, "method": "mtp"}'])
    assert (made.pace.draft_tokens, made.pace.acceptance) == (3, 0.7)
    glm = configured(preset("glm-5-nvfp4"), ["--speculative-config", '{"num_speculative_tokens": 2}'])
    assert (glm.pace.draft_tokens, glm.pace.acceptance) == (2, 0.75)


@pytest.mark.parametrize("value", ["nonsense", "[]", "{}", '{"num_speculative_tokens": -1}'])
def test_a_speculation_that_cannot_be_read_is_an_error(value: str) -> None:
    with pytest.raises(BadArgument, match="--speculative-config"):
        configured(GIVEN, ["--speculative-config", value])


def test_the_own_all_reduce_can_be_switched_off() -> None:
    assert custom_allreduce([])
    assert not custom_allreduce(["--disable-custom-all-reduce"])
    assert find(["-x"], "--y") is None
