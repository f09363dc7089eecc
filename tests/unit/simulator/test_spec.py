from __future__ import annotations

import pytest

from gateway.simulator.spec import Defaults, options_of, read_address, read_spec

DEFAULTS = Defaults(model="m", version="0.32.0", max_model_len=100, gpus=8)


def test_nothing_given_is_the_preset() -> None:
    spec = read_spec([], DEFAULTS)
    assert (spec.model, spec.max_model_len, spec.tensor_parallel, spec.stream_interval) == ("m", 100, 8, 1)
    assert not spec.parses_reasoning
    assert spec.api_keys == ()


def test_a_command_line_of_vllm_is_read() -> None:
    spec = read_spec(
        [
            "vllm",
            "serve",
            "./x",
            "--served-model-name",
            "a",
            "b",
            "--max_model_len=7",
            "-tp",
            "2",
            "--api-key",
            "k1",
            "k2",
        ],
        DEFAULTS,
    )
    assert (spec.root, spec.model, spec.max_model_len, spec.tensor_parallel) == ("./x", "a", 7, 2)
    assert spec.api_keys == ("k1", "k2")


def test_a_negative_value_is_no_option() -> None:
    assert options_of(["--x", "-1"]) == ([], {"--x": ["-1"]})


def test_the_model_is_its_own_name_where_none_is_given() -> None:
    assert read_spec(["./x"], DEFAULTS).model == "./x"


def test_the_fingerprint_follows_the_arguments() -> None:
    assert read_spec(["./x"], DEFAULTS).fingerprint != read_spec(["./y"], DEFAULTS).fingerprint


def test_no_number_is_an_error() -> None:
    with pytest.raises(ValueError, match="many"):
        read_spec(["--max-model-len", "many"], DEFAULTS)


def test_the_address_among_the_arguments_wins_over_the_one_that_is_given() -> None:
    arguments = ["serve", "m", "--port", "8123", "--host=0.0.0.0"]
    assert read_address(arguments, host="127.0.0.1", port=8000) == ("0.0.0.0", 8123)
    assert read_address(["serve", "m"], host="127.0.0.1", port=8000) == ("127.0.0.1", 8000)
    with pytest.raises(ValueError, match="many"):
        read_address(["--port", "many"], host="127.0.0.1", port=8000)
