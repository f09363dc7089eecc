"""The openai npm client, straight to vLLM and through the gateway; npm/client.mjs holds the scenes."""

from typing import Any

import pytest

from tests.live.rig import npm
from tests.live.rig.engine import Engine
from tests.live.rig.leaving import freed_early
from tests.live.rig.ways import Served


def play(served: Served, scene: str) -> Any:
    return npm.play(served.base_url, scene)


def test_models_are_listed(served):
    assert play(served, "models") == {"ids": ["tiny"]}


def test_a_stream_carries_both_channels_and_no_usage_unasked(served):
    seen = play(served, "stream")

    assert seen["reasoning"]
    assert seen["content"]
    assert seen["finish"] == "stop"
    assert seen["withoutChoices"] == 0
    assert seen["usage"] is None


def test_usage_comes_in_one_chunk_without_choices_when_asked_for(served):
    seen = play(served, "usage")

    assert seen["withoutChoices"] == 1
    assert seen["usage"]["completion_tokens"] > seen["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0


def test_an_answer_in_one_piece(served):
    answer = play(served, "whole")

    assert answer["content"]
    assert answer["reasoning"]
    assert answer["finish"] == "stop"
    assert answer["usage"]["total_tokens"] > 0
    assert answer["type"] == "application/json"


def test_streamed_completions(served):
    assert play(served, "completions")["text"]


def test_the_clients_own_stream_helper_puts_the_answer_together(served):
    answer = play(served, "helper")

    assert answer["content"] == play(served, "whole")["content"]
    assert answer["finish"] == "stop"


def test_responses_say_the_same_in_one_piece_and_as_a_stream(served):
    seen = play(served, "responses")

    assert list(seen["whole"]) == ["reasoning", "message"]
    assert all(seen["whole"].values())
    assert seen["whole"]["message"] == seen["text"]
    assert seen["deltas"] == seen["end"] == seen["whole"]
    assert seen["last"] == "response.completed"
    assert seen["usage"]["output_tokens"] > seen["usage"]["output_tokens_details"]["reasoning_tokens"] > 0


def test_an_aborted_stream_frees_the_engine(served, idle: Engine):
    with freed_early(idle):
        assert play(served, "abort")["chunks"] == 20


@pytest.mark.parametrize("call", ["model", "modelStream", "responses"])
def test_an_unknown_model_is_a_not_found_error(served, call):
    assert play(served, "errors")[call]["name"] == "NotFoundError"


def test_bad_values_are_bad_request_errors_with_a_message(served):
    errors = play(served, "errors")

    for wrong in ("maxTokens", "temperature"):
        assert errors[wrong]["name"] == "BadRequestError"
        assert errors[wrong]["status"] == 400
        assert errors[wrong]["message"]
    assert errors["path"]["name"] == "NotFoundError"
