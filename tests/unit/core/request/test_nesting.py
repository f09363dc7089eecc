"""Depth and size of a body, against a plain reading of the same JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.request.body import parse_body
from gateway.core.request.nesting import MAX_MARKS, check_nesting
from gateway.core.stream.summary import Dialect
from gateway.errors import BadRequest

TEXT = st.text(st.sampled_from('[]{}"\\,:a\u00e9\n'), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=40,
)


def depth_of(value: Any) -> int:
    match value:
        case dict():
            return 1 + max(map(depth_of, value.values()), default=0)
        case list():
            return 1 + max(map(depth_of, value), default=0)
        case _:
            return 0


def count(value: Any) -> int:
    match value:
        case dict() | list():
            below = list(value.values()) if isinstance(value, dict) else value
            return 1 + max(0, len(below) - 1) + sum(count(it) for it in below if isinstance(it, dict | list))
        case _:
            return 0


def passes(body: bytes, *, depth: int = 10**6, values: int = 10**9) -> bool:
    try:
        check_nesting(body, parse_body(body, Dialect.OPAQUE).fields, depth=depth, values=values)
    except BadRequest:
        return False
    return True


@given(fields=st.dictionaries(TEXT, JSON, max_size=5), depth=st.integers(1, 8), escaped=st.booleans())
def test_a_body_passes_exactly_when_it_is_no_deeper(fields: dict[str, Any], depth: int, escaped: bool) -> None:
    body = json.dumps(fields, ensure_ascii=escaped).encode()
    fits = depth_of(fields) <= depth
    assert passes(body, depth=depth) is fits
    assert passes(body, depth=depth, values=len(body) - 1) is fits, "also where it may hold too many values"


@given(fields=st.dictionaries(TEXT, JSON, max_size=5), depth=st.integers(1, 8))
def test_so_does_one_with_very_many_brackets(fields: dict[str, Any], depth: int) -> None:
    body = json.dumps({**fields, "many": [[]] * (5000)}).encode()
    assert passes(body, depth=depth) is (max(depth_of(fields), 3) <= depth)


@given(fields=st.dictionaries(TEXT, JSON, max_size=5), values=st.integers(0, 40))
def test_a_body_passes_exactly_when_it_holds_no_more_values(fields: dict[str, Any], values: int) -> None:
    body = json.dumps(fields).encode()
    # Strings are stripped in bounded number: with more of them than values allowed the body is refused at once.
    strings = body.replace(b"\\\\", b"").replace(b'\\"', b"").count(b'"') // 2
    if strings <= values:
        assert passes(body, values=values) is (count(fields) <= values or len(body) <= values)


@pytest.mark.parametrize(
    "value",
    [
        '{"a":' * 64 + "1" + "}" * 64,
        "[" * 64 + "]" * 64,
        '[{"}":' * 32 + "1" + "}]" * 32,
        '{"]":["[",' * 32 + "1" + "]}" * 32,
        '["' + "[" * 9 + '",' + "[" * 63 + "]" * 64,
    ],
    ids=["objects", "lists", "closers in keys", "openers in strings", "deep beside a string"],
)
def test_one_level_too_many_is_refused_by_name_however_it_is_disguised(value: str) -> None:
    body = f'{{"shallow":[1],"deep":{value}}}'.encode()
    fields = parse_body(body, Dialect.OPAQUE).fields
    with pytest.raises(BadRequest, match="deep is nested too deeply: the body may have 64 levels") as caught:
        check_nesting(body, fields, depth=64, values=10**6)
    assert caught.value.param == "deep"


def test_at_the_limit_it_passes() -> None:
    assert passes(b'{"a":' + b"[" * 63 + b"]" * 63 + b"}", depth=64)
    assert not passes(b'{"a":' + b"[" * 64 + b"]" * 64 + b"}", depth=64)
    assert passes(b'{"a":1}', depth=1)
    assert not passes(b'{"a":[]}', depth=1)
    assert passes(b'{"a":[]}', depth=2)
    assert not passes(b'{"a":[{}]}', depth=2)


def test_brackets_in_text_cost_nothing_but_a_look() -> None:
    body = json.dumps({"messages": [{"content": "[" * 100_000 + "{" * 100_000}]}).encode()
    assert passes(body, depth=4)


def test_too_many_values_are_refused() -> None:
    body = json.dumps({"a": list(range(1000))}).encode()
    with pytest.raises(BadRequest, match="more than 500 JSON values"):
        check_nesting(body, parse_body(body, Dialect.OPAQUE).fields, depth=64, values=500)
    assert passes(body, values=1001)
    assert passes(json.dumps({"a": "," * 1000}).encode(), values=500), "commas of a text are none"
    assert not passes(json.dumps({"a": ["x"] * 1000}).encode(), values=500)


def test_texts_that_would_keep_the_process_busy_are_refused_where_they_have_to_be_looked_at() -> None:
    text = b'\\"' * (MAX_MARKS // 2 + 1)
    deep, flat = b"[" * 65 + b"]" * 65, b"[]"
    refused = b'{"messages":"' + text + b'","b":' + deep + b"}"
    with pytest.raises(BadRequest, match="more than 4000000 quotes, brackets, commas and backslashes"):
        check_nesting(refused, parse_body(refused, Dialect.OPAQUE).fields, depth=64, values=1_000_000)
    assert passes(b'{"messages":"' + text + b'","b":' + flat + b"}", depth=64, values=1_000_000)
    assert not passes(b'{"messages":"' + text[:1000] + b'","b":' + deep + b"}", depth=64, values=1_000_000)
