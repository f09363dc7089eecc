"""Whatever a body holds, admitting it ends in a parsed body or in one error for its client, and in bounded time."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.request.body import emit_body, parse_body
from gateway.core.request.form import parse_form
from gateway.core.request.media import FIELDS
from gateway.core.request.parameters import RULES, check_parameters
from gateway.core.routing.parameters import ParameterPolicy
from gateway.core.stream.summary import Dialect
from gateway.errors import BadRequest

KEYS = ("image_url", "url", "content", "output", "source", "type", "image_embeds", "input", "text", "role")
WORDS = ("http://x/", "data:,", "image_url", "prompt_embeds", "file:///x", "", "user")
NESTED = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from(WORDS)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=25,
)
BODIES = st.dictionaries(st.sampled_from([*RULES, *FIELDS, "vllm_xargs", "echo", "tools", "model", "stream"]), NESTED)
POLICIES = st.builds(
    ParameterPolicy,
    n=st.integers(1, 5),
    max_tokens=st.integers(0, 5),
    prompt_logprobs=st.integers(0, 5),
    embeds=st.booleans(),
    remote_media=st.booleans(),
    json_depth=st.integers(1, 8),
    json_values=st.integers(1, 100),
)
DAMAGE = st.lists(
    st.tuples(
        st.integers(0, 400), st.sampled_from([b"\xff", b"\xed\xa0\x80", b"\\ud800", b"\\", b'"', b"\x00", b"{", b"]"])
    ),
    max_size=3,
)


def reach(value: Any) -> list[Any]:
    """Every URL that an engine would find below a list of messages, by a plain reading."""
    found: list[Any] = []
    if isinstance(value, list):
        for entry in value:
            found += reach(entry)
    elif isinstance(value, dict):
        for key, below in value.items():
            if key in {"image_url", "url"} and not isinstance(below, dict):
                found.append(below)
            elif key in {"content", "output", "source", "image_url", "url"}:
                found += reach(below)
    return found


@settings(max_examples=400, deadline=None)
@given(body=BODIES, policy=POLICIES, damage=DAMAGE, dialect=st.sampled_from(Dialect), escaped=st.booleans())
def test_a_body_passes_or_is_refused_and_nothing_else_happens(
    body: dict[str, Any], policy: ParameterPolicy, damage: list[tuple[int, bytes]], dialect: Dialect, escaped: bool
) -> None:
    data = json.dumps(body, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    for at, piece in damage:
        data = data[:at] + piece + data[at:]
    try:
        parsed = parse_body(data, dialect)
        check_parameters(data, parsed.fields, policy)
    except BadRequest:
        return
    emit_body(parsed, inject_usage=False)


@settings(max_examples=400, deadline=None)
@given(body=BODIES, embeds=st.booleans())
def test_what_passes_holds_no_medium_from_elsewhere(body: dict[str, Any], embeds: bool) -> None:
    data = json.dumps(body).encode()
    policy = ParameterPolicy(
        n=10**9, best_of=10**9, logprobs=10**9, prompt_logprobs=10**9, priority=True, background=True,
        chat_template=True, processor_kwargs=True, transfer_params=True, embeds=embeds,
    )  # fmt: skip
    try:
        check_parameters(data, parse_body(data, Dialect.CHAT).fields, policy)
    except BadRequest:
        return
    urls = [url for name in FIELDS for url in reach(body.get(name))]
    assert all(url is None or url == "" or str(url).lower().startswith("data:") for url in urls)


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=300), boundary=st.sampled_from(["x", "--", "a:b"]))
def test_a_form_of_anything_is_read_or_refused(data: bytes, boundary: str) -> None:
    whole = f"--{boundary}\r\n".encode() + data
    try:
        body = parse_form(whole, boundary)
    except BadRequest:
        return
    assert emit_body(body, inject_usage=False) == whole
