"""Arguments of vLLM that change the simulated engine."""

from __future__ import annotations

import pytest

from gateway.simulator.arguments import BadArgument, configured, custom_allreduce, find, with_cache
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


def test_underscores_are_dashes_as_vllm_reads_them() -> None:
    assert configured(GIVEN, ["--max_num_seqs=5"]).serve.max_seqs == 5
    assert not custom_allreduce(["--disable_custom_all_reduce"])


def test_prefix_caching_is_on_unless_it_is_switched_off_last() -> None:
    assert configured(GIVEN, []).serve.prefix_caching
    assert not configured(GIVEN, ["--no-enable-prefix-caching"]).serve.prefix_caching
    assert configured(GIVEN, ["--no-enable-prefix-caching", "--enable-prefix-caching"]).serve.prefix_caching


@pytest.mark.parametrize("arguments", [["-tp", "4"], ["--tensor-parallel-size=4"]])
def test_an_engine_spreads_over_as_many_cards_as_it_is_told_and_no_more_than_there_are(arguments: list[str]) -> None:
    assert configured(GIVEN, arguments).box.gpus == 4
    assert configured(GIVEN, ["-tp", "99"]).box.gpus == 8


def cache_tokens(*arguments: str, buffer_bytes: int = 0) -> int:
    return with_cache(GIVEN, arguments, buffer_bytes=buffer_bytes).serve.kv_cache_tokens


def test_the_cache_is_what_memory_leaves_or_what_is_said() -> None:
    stated = GIVEN.serve.kv_cache_tokens
    assert cache_tokens() == cache_tokens("--gpu-memory-utilization", "0.9") == stated
    assert cache_tokens("--gpu-memory-utilization", "0.95") > 1.2 * stated
    assert cache_tokens("--gpu-memory-utilization", "0.5") == 16  # not even the weights fit
    assert cache_tokens(buffer_bytes=2 * 1024**3) < 0.95 * stated
    assert cache_tokens("--num-gpu-blocks-override", "10") == 160


@pytest.mark.parametrize("value", ["much", "0", "1.1"])
def test_a_share_of_memory_that_cannot_be_is_an_error(value: str) -> None:
    with pytest.raises(BadArgument, match="--gpu-memory-utilization"):
        cache_tokens("--gpu-memory-utilization", value)


def test_context_and_batch_may_be_human_and_the_number_of_drafts_is_no_truth() -> None:
    assert configured(GIVEN, ["--max-model-len", "32k"]).model.max_model_len == 32_000
    assert configured(GIVEN, ["--max-num-batched-tokens", "2K"]).serve.batched_tokens == 2048
    assert configured(GIVEN, ["--max-model-len", "auto"]) == GIVEN
    with pytest.raises(BadArgument):
        configured(GIVEN, ["--speculative-config", '{"num_speculative_tokens": true}'])
