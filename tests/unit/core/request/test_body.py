"""A request body: read once at its top level, re-emitted for the backend."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.request.body import (
    MAX_SHORT_BYTES,
    MAY_BE_LONG,
    emit_body,
    is_stored,
    may_inject_usage,
    no_body,
    parse_body,
    previous_response,
    renamed,
)
from gateway.core.stream.summary import Dialect
from gateway.errors import BadRequest

CHAT, COMPLETIONS = Dialect.CHAT, Dialect.COMPLETIONS
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def encoded(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"1", b"{", b'{"a":}', b'{"a":1,}', b"\xff", b'{"a":1}{'])
def test_anything_but_a_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(BadRequest, match="not a JSON object"):
        parse_body(data, CHAT)


def test_nothing_at_all_is_told_apart_from_what_is_cut() -> None:
    with pytest.raises(BadRequest, match="is empty"):
        parse_body(b"", CHAT)
    with pytest.raises(BadRequest, match="truncated"):
        parse_body(b"{", CHAT)


def test_the_refusal_never_quotes_the_body() -> None:
    with pytest.raises(BadRequest) as caught:
        parse_body(b'{"secret prompt', CHAT)
    assert "secret" not in caught.value.message


def test_nesting_that_would_overflow_is_refused() -> None:
    with pytest.raises(BadRequest, match="nested too deeply"):
        parse_body(b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}", CHAT)


def test_what_decides_the_measuring_is_read() -> None:
    body = parse_body(
        encoded(
            model="m",
            stream=True,
            n=3,
            logprobs=True,
            return_token_ids=True,
            response_format={"type": "json_object"},
            stream_options={"include_usage": True, "continuous_usage_stats": True},
        ),
        CHAT,
    )
    assert (body.model, body.asked_usage) == ("m", True)
    shape = body.shape
    assert (shape.stream, shape.n, shape.logprobs, shape.token_ids) == (True, 3, True, True)
    assert (shape.structured, shape.continuous_usage) == (True, True)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"model": None, "stream": None, "n": None, "logprobs": None, "stream_options": None},
        {"model": 5, "stream": "maybe", "n": "two", "logprobs": False, "stream_options": "x"},
        {"n": 0, "response_format": None},
    ],
)
def test_what_is_absent_null_or_of_another_type_counts_as_not_asked(fields: dict[str, Any]) -> None:
    body = parse_body(encoded(**fields), CHAT)
    assert (body.model, body.asked_usage) == ("", False)
    shape = body.shape
    assert (shape.stream, shape.n, shape.logprobs, shape.structured) == (False, 1, False, False)


@pytest.mark.parametrize(
    "prompt, choices",
    [("text", 2), (["a", "b", "c"], 6), ([1, 2, 3], 2), ([[1, 2], [3]], 4), ([], 2), (None, 2), (5, 2)],
)
def test_completions_have_a_choice_for_each_prompt(prompt: object, choices: int) -> None:
    assert parse_body(encoded(prompt=prompt, n=2), COMPLETIONS).shape.n == choices
    assert parse_body(encoded(prompt=prompt, n=2), CHAT).shape.n == 2


@given(fields=st.dictionaries(st.text(), json_values, max_size=6))
def test_what_goes_upstream_means_the_same(fields: dict[str, Any]) -> None:
    body = parse_body(json.dumps(fields).encode(), CHAT)
    assert json.loads(emit_body(body, inject_usage=False)) == fields


def test_of_duplicate_keys_the_last_one_goes_upstream() -> None:
    body = parse_body(b'{"model":"a","x":1,"model":"b"}', CHAT)
    assert (body.model, json.loads(emit_body(body, inject_usage=False))) == ("b", {"model": "b", "x": 1})


@pytest.mark.parametrize(
    "options, sent",
    [
        (..., {"include_usage": True}),
        (None, {"include_usage": True}),
        ({}, {"include_usage": True}),
        ({"include_usage": None, "x": [1]}, {"include_usage": True, "x": [1]}),
    ],
)
def test_usage_is_asked_for_without_losing_other_options(options: object, sent: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"stream": True} | ({} if options is ... else {"stream_options": options})
    body = parse_body(encoded(**fields), CHAT)
    assert may_inject_usage(body, CHAT)
    assert json.loads(emit_body(body, inject_usage=True)) == {"stream": True, "stream_options": sent}


@pytest.mark.parametrize(
    "fields, dialect",
    [
        ({"stream": False}, CHAT),
        ({}, COMPLETIONS),
        ({"stream": True, "stream_options": {"include_usage": True}}, CHAT),
        ({"stream": True, "stream_options": "text"}, CHAT),
        ({"stream": True, "stream_options": [1]}, CHAT),
        ({"stream": True}, Dialect.RESPONSES),
        ({"stream": True}, Dialect.MESSAGES),
    ],
)
def test_usage_is_left_alone_where_it_would_be_wrong_or_an_error(fields: dict[str, Any], dialect: Dialect) -> None:
    assert not may_inject_usage(parse_body(encoded(**fields), dialect), dialect)


def test_what_the_engine_takes_for_true_counts_as_asked() -> None:
    body = parse_body(encoded(stream=1, n="3", stream_options={"include_usage": "true"}), CHAT)
    assert (body.shape.stream, body.shape.n, body.asked_usage) == (True, 3, True)


@pytest.mark.parametrize("word", [True, 1, 1.0, "1", "t", "TRUE", "y", "Yes", "on"], ids=repr)
def test_a_stream_is_one_by_every_word_that_the_engine_takes_for_it(word: object) -> None:
    """Else no usage would be asked for, and the answer would cost its key no prompt."""
    body = parse_body(encoded(stream=word), CHAT)
    assert body.shape.stream
    assert may_inject_usage(body, CHAT)
    assert parse_body(encoded(stream=True, stream_options={"include_usage": word}), CHAT).asked_usage


@pytest.mark.parametrize("word", [False, None, 0, 0.0, 2, "0", "no", "off", " true", "", [True], {}], ids=repr)
def test_what_the_engine_takes_for_no_or_refuses_is_no_stream(word: object) -> None:
    assert not parse_body(encoded(stream=word), CHAT).shape.stream


def test_continuous_usage_is_never_switched_on_by_asking_for_usage() -> None:
    body = parse_body(encoded(stream=True, stream_options={"continuous_usage_stats": True}), CHAT)
    assert not body.shape.continuous_usage
    assert json.loads(emit_body(body, inject_usage=True))["stream_options"] == {"include_usage": True}


def many(entry: bytes, size_bytes: int) -> bytes:
    return b",".join([entry] * (size_bytes // (len(entry) + 1)))


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m",' + b",".join(b'"%x":1' % key for key in range(300_000)) + b"}",
        b'{"model":"m",' + many(b'"a":1', 2 * MAX_SHORT_BYTES) + b"}",
        b'{"model":"m",' + many(b'"a"   : 1', 4 * MAX_SHORT_BYTES) + b"}",
    ],
    ids=["keys", "one-key-again", "blanks"],
)
def test_a_body_of_very_many_keys_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest, match="no field that may be long"):
        parse_body(body, CHAT)


@pytest.mark.parametrize("field", ["model", "a_field_of_tomorrow", "messages"])
def test_one_long_value_passes_whatever_its_field_is_called(field: str) -> None:
    data = b'{"%b":"%b"}' % (field.encode(), b"x" * 5 * MAX_SHORT_BYTES)
    assert emit_body(parse_body(data, CHAT), inject_usage=False) == data


@pytest.mark.parametrize("field", MAY_BE_LONG)
def test_what_may_be_long_may_be_long(field: str) -> None:
    data = b'{"model":"m","%b":[%b]}' % (field.encode(), many(b'"1"', 4 * MAX_SHORT_BYTES))
    body = parse_body(data, CHAT)
    assert (body.model, emit_body(body, inject_usage=False)) == ("m", data)


def test_a_long_body_that_is_no_json_is_refused_as_a_short_one() -> None:
    long = b"[" * 2 * MAX_SHORT_BYTES
    with pytest.raises(BadRequest, match="not a JSON object"):
        parse_body(long, CHAT)
    with pytest.raises(BadRequest, match="nested too deeply"):
        parse_body(b'{"a":' + long, CHAT)


def test_options_without_measure_are_refused_since_no_usage_could_be_asked_for() -> None:
    options = {f"x{number}": 1 for number in range(1000)}
    with pytest.raises(BadRequest, match="stream_options is over 4096 bytes"):
        may_inject_usage(parse_body(encoded(stream=True, stream_options=options), CHAT), CHAT)


def test_prompts_without_measure_are_not_counted() -> None:
    few = b'{"prompt":[' + many(b'"ab"', MAX_SHORT_BYTES - 100) + b"]}"
    assert parse_body(few, COMPLETIONS).shape.n == few.count(b"ab")
    assert parse_body(b'{"n":2,"prompt":[' + many(b'"ab"', 2 * MAX_SHORT_BYTES) + b"]}", COMPLETIONS).shape.n == 2


# --- what Responses and Messages say in words of their own --------------------------------------------------------


@pytest.mark.parametrize(
    "body,dialect,logprobs,structured",
    [
        (b'{"include":["message.output_text.logprobs"]}', Dialect.RESPONSES, True, False),
        (b'{"include":["reasoning.encrypted_content"],"logprobs":true}', Dialect.RESPONSES, False, False),
        (b'{"top_logprobs":3}', Dialect.RESPONSES, False, False),
        (b'{"text":{"format":{"type":"json_schema","schema":{}}}}', Dialect.RESPONSES, False, True),
        (b'{"text":{"format":{"type":"text"}}}', Dialect.RESPONSES, False, False),
        (b'{"output_config":{"format":{"type":"json_schema"}}}', Dialect.MESSAGES, False, True),
        (b'{"output_config":{"effort":"low"}}', Dialect.MESSAGES, False, False),
    ],
)
def test_what_bends_a_measurement_is_seen_in_every_dialect(
    body: bytes, dialect: Dialect, logprobs: bool, structured: bool
) -> None:
    shape = parse_body(body, dialect).shape
    assert (shape.logprobs, shape.structured) == (logprobs, structured)


@pytest.mark.parametrize("dialect", [Dialect.RESPONSES, Dialect.MESSAGES, Dialect.OPAQUE])
def test_several_choices_are_a_matter_of_chat_and_completions(dialect: Dialect) -> None:
    assert parse_body(b'{"n":3,"prompt":["a","b"]}', dialect).shape.n == 1


def test_an_opaque_endpoint_has_no_streams() -> None:
    assert not parse_body(b'{"stream":true}', Dialect.OPAQUE).shape.stream


@pytest.mark.parametrize(
    "body,before,stored",
    [
        (b"{}", "", True),
        (b'{"previous_response_id":"resp_1","store":true}', "resp_1", True),
        (b'{"previous_response_id":null,"store":null}', "", True),
        (b'{"previous_response_id":7,"store":false}', "", False),
    ],
)
def test_what_a_response_has_to_do_with_others(body: bytes, before: str, stored: bool) -> None:
    parsed = parse_body(body, Dialect.RESPONSES)
    assert (previous_response(parsed), is_stored(parsed)) == (before, stored)


def test_a_request_without_a_body_asks_for_what_was_made_before() -> None:
    body = no_body(stream=True)
    assert (body.shape.stream, body.shape.replay, body.media_type) == (True, True, b"")
    assert emit_body(body, inject_usage=False) == b""


def test_a_renamed_request_is_the_same_for_another_model() -> None:
    body = renamed(parse_body(b'{"model":"a","n":1}', Dialect.CHAT), "b")
    assert (body.model, emit_body(body, inject_usage=False)) == ("b", b'{"model":"b","n":1}')
