"""Shapes that the dialects share, read leniently: usage, metrics, errors."""

from __future__ import annotations

import pytest
from msgspec import Raw

from gateway.core.stream.chunk import (
    ABSENT,
    Usage,
    is_given,
    read_error,
    read_metrics,
    read_usage,
    utf8_bytes,
    word,
)
from gateway.core.stream.summary import EngineError, EngineMetrics


@pytest.mark.parametrize("text,expected", [("", 0), ("abc", 3), ("é", 2), ("語", 3), ("😀", 4), ("a😀", 5)])
def test_text_is_measured_in_utf8_bytes(text: str, expected: int) -> None:
    assert utf8_bytes(text) == expected


def test_null_and_absent_are_both_not_given() -> None:
    assert not is_given(ABSENT)
    assert not is_given(Raw(b"null"))
    assert is_given(Raw(b"0"))


@pytest.mark.parametrize(
    "raw,expected",
    [
        (
            (
                b'{"prompt_tokens":14,"total_tokens":97,"completion_tokens":83,"prompt_tokens_details":{"cached_tokens":4},'
                b'"completion_tokens_details":{"reasoning_tokens":40}}'
            ),
            Usage(prompt=14, cached=4, completion=83, reasoning=40),
        ),
        (
            b'{"prompt_tokens":4,"completion_tokens":24,"prompt_tokens_details":null}',
            Usage(prompt=4, completion=24),
        ),
        (
            (
                b'{"input_tokens":14,"input_tokens_details":{"cached_tokens":3},"output_tokens":83,'
                b'"output_tokens_details":{"reasoning_tokens":40}}'
            ),
            Usage(prompt=14, cached=3, completion=83, reasoning=40),
        ),
        (
            b'{"input_tokens":10,"cache_read_input_tokens":4,"cache_creation_input_tokens":2,"output_tokens":5}',
            Usage(prompt=16, cached=4, completion=5),
        ),
        (b'{"input_tokens":14,"output_tokens":0}', Usage(prompt=14, completion=0)),
        (b"{}", Usage()),
        (b'{"completion_tokens":-1,"prompt_tokens":100000000000000000000}', Usage()),
    ],
    ids=["chat", "no details", "responses", "messages with a cache", "messages", "empty", "impossible numbers"],
)
def test_usage_of_every_dialect_has_one_form(raw: bytes, expected: Usage) -> None:
    assert read_usage(raw) == expected
    assert read_usage(Raw(raw)) == expected


@pytest.mark.parametrize("raw", [None, b"null", b"[]", b'"x"', b"{", b'{"completion_tokens":"many"}', b"[" * 100_000])
def test_usage_of_any_other_shape_is_unknown(raw: bytes | None) -> None:
    assert read_usage(raw) is None


def test_metrics_with_speculative_decoding_are_read() -> None:
    raw = (
        b'{"time_to_first_token_ms":10.5,"generation_time_ms":1443.6,"queue_time_ms":0.03,"mean_itl_ms":4.8,'
        b'"tokens_per_second":206.3,"speculative_decoding":{"mean_acceptance_length":2.5,"draft_acceptance_rate":0.5,'
        b'"acceptance_histogram":[1,2,3],"num_spec_tokens":3}}'
    )
    assert read_metrics(raw) == EngineMetrics(
        time_to_first_token_ms=10.5,
        generation_time_ms=1443.6,
        queue_time_ms=0.03,
        mean_itl_ms=4.8,
        tokens_per_second=206.3,
        mean_acceptance_length=2.5,
        draft_acceptance_rate=0.5,
        spec_tokens=3,
    )


@pytest.mark.parametrize("raw", [None, b"null", b"{}", b"7", b'{"mean_itl_ms":"fast"}', b'{"mean_itl_ms":null}'])
def test_metrics_that_say_nothing_are_none(raw: bytes | None) -> None:
    assert read_metrics(raw) is None


@pytest.mark.parametrize("value", [b"-1", b"-0.5", b"1e10", b"1e308", b"2e9"])
@pytest.mark.parametrize("field", [field for field in EngineMetrics.__struct_fields__ if field.endswith("_ms")])
def test_figures_that_cannot_be_are_left_out(field: str, value: bytes) -> None:
    assert read_metrics(b'{"tokens_per_second":5,"%b":%b}' % (field.encode(), value)) == EngineMetrics(
        tokens_per_second=5.0
    )


@pytest.mark.parametrize("value", [b"-1", b"18446744073709551616", b"-9223372036854775809", b"1e300"])
def test_figures_of_speculation_that_cannot_be_are_left_out(value: bytes) -> None:
    speculative = b'{"mean_acceptance_length":-%b,"draft_acceptance_rate":-7,"num_spec_tokens":%b}' % (b"3", value)
    assert read_metrics(b'{"speculative_decoding":%b}' % speculative) is None


@pytest.mark.parametrize(
    "raw,expected",
    [
        (b'{"message":"secret","type":"InternalServerError","param":null,"code":500}', ("500", "InternalServerError")),
        (b'{"message":"secret","type":"server_error","code":"server_error"}', ("server_error", "server_error")),
        (b'{"code":null}', (None, None)),
        (b'"secret"', (None, None)),
        (b'{"code":{"secret":1}}', (None, None)),
        (b'{"type":"two\\nlines"}', (None, "unprintable")),
    ],
)
def test_of_an_error_only_code_and_type_are_kept(raw: bytes, expected: tuple[str | None, str | None]) -> None:
    error = read_error(raw)
    assert error == EngineError(code=expected[0], type=expected[1])
    assert "secret" not in repr(error)


@pytest.mark.parametrize(
    "message, fatal",
    [
        (b'"EngineCore encountered an issue. See stack trace (above) for the root cause."', True),
        (b'"another"', False),
        (b"7", False),
        (b"null", False),
    ],
)
def test_an_error_that_says_that_the_engine_is_dead_is_marked_and_its_text_is_not_kept(
    message: bytes, *, fatal: bool
) -> None:
    assert read_error(b'{"code":500,"message":%b}' % message) == EngineError(code="500", fatal=fatal)


def test_words_of_an_engine_are_kept_short() -> None:
    assert word("x" * 1000) == "x" * 64
