from __future__ import annotations

import pytest

from gateway.simulator.human_int import human_int
from gateway.simulator.spec import Defaults, TooManyRanks, options_of, read_address, read_spec, read_uds

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


@pytest.mark.parametrize(
    "text, number", [("7", 7), ("1k", 1000), ("1K", 1024), ("25.6k", 25_600), ("2M", 2 << 20), (" 3g ", 3 * 10**9)]
)
def test_human_readable_numbers_are_read_as_vllm_reads_them(text: str, number: int) -> None:
    assert human_int(text) == number


@pytest.mark.parametrize("text", ["", "k", "1.5K", "1kk", "many", "1.5"])
def test_what_vllm_cannot_read_is_an_error_here_too(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        human_int(text)


def test_the_length_of_the_context_may_be_human_or_automatic() -> None:
    assert read_spec(["--max-model-len", "32k"], DEFAULTS).max_model_len == 32_000
    assert read_spec(["--max-model-len", "auto"], DEFAULTS).max_model_len == 100
    assert read_spec(["--max-model-len=-1"], DEFAULTS).max_model_len == 100


def test_more_ranks_than_gpus_are_refused_in_the_words_of_vllm() -> None:
    with pytest.raises(TooManyRanks, match=r"^World size \(9\) is larger than the number of available GPUs \(8\)"):
        read_spec(["-tp", "9"], DEFAULTS)


def test_the_key_of_the_environment_holds_unless_one_is_given() -> None:
    environment = {"VLLM_API_KEY": "secret"}
    assert read_spec([], DEFAULTS, environment=environment).api_keys == ("secret",)
    assert read_spec(["--api-key", "k"], DEFAULTS, environment=environment).api_keys == ("k",)


@pytest.mark.parametrize("port", ["99999", "0", "-1", "x"])
def test_what_is_no_port_is_an_error(port: str) -> None:
    with pytest.raises(ValueError, match="port"):
        read_address([f"--port={port}"], host="127.0.0.1", port=8000)


def test_a_socket_in_the_file_system_is_read() -> None:
    assert read_uds(["m", "--uds", "/x/y"]) == "/x/y"
    assert read_uds(["m"]) == ""


def test_the_log_lists_what_was_given_and_no_key() -> None:
    arguments = ["./x", "--max-num-seqs", "4", "-tp", "2", "--enforce-eager", "--no-enable-prefix-caching"]
    assert read_spec([*arguments, "--api-key", "k", "--served-model-name", "a"], DEFAULTS).given == {
        "model_tag": "./x",
        "model": "./x",
        "max_num_seqs": 4,
        "tensor_parallel_size": 2,
        "enforce_eager": True,
        "enable_prefix_caching": False,
        "api_key": "***",
        "served_model_name": ["a"],
    }
