"""The endpoint map: default deny, constants only, ids of one strict grammar."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.routing.endpoints import ENDPOINTS, ID, Serves, Takes, checked_query, locate, nearest
from gateway.core.stream.summary import Dialect
from gateway.errors import BadRequest

RESPONSE = ENDPOINTS["/v1/responses/{id}"]
ENGINE = [endpoint for endpoint in ENDPOINTS.values() if endpoint.serves is Serves.ENGINE]


def test_names_and_paths_are_unique_and_match() -> None:
    assert all(path == endpoint.path for path, endpoint in ENDPOINTS.items())
    assert len({e.name for e in ENDPOINTS.values()}) == len(ENDPOINTS)


def test_what_the_engine_serves_has_a_dialect_and_is_post_only_but_for_one_that_is_asked_for_again() -> None:
    for endpoint in ENGINE:
        assert endpoint.methods == ({"GET"} if endpoint is RESPONSE else {"POST"})
        assert endpoint.dialect is not None
        assert endpoint.owned is (endpoint.takes is Takes.NOTHING)
        if not endpoint.owned:
            assert endpoint.upstream_path == endpoint.target("", b"") == endpoint.path.encode()


def test_what_vllm_leaves_open_is_not_on_the_map() -> None:
    denied = {"/metrics", "/invocations", "/scale_elastic_ep", "/collective_rpc", "/sleep", "/pause", "/docs", "/load"}
    assert denied.isdisjoint(ENDPOINTS)


@pytest.mark.parametrize("path", [path for path in ENDPOINTS if "{id}" not in path])
def test_a_path_of_the_map_is_found_as_it_is(path: str) -> None:
    assert locate(ENDPOINTS, path) == (ENDPOINTS[path], "")


@pytest.mark.parametrize("thing", ["resp_0123abcd", "resp_A-b_9", "resp_" + "x" * 123, "resp_cancel"])
def test_an_id_is_taken_out_of_a_path_and_put_into_the_target(thing: str) -> None:
    assert locate(ENDPOINTS, f"/v1/responses/{thing}") == (RESPONSE, thing)
    cancel = ENDPOINTS["/v1/responses/{id}/cancel"]
    assert locate(ENDPOINTS, f"/v1/responses/{thing}/cancel") == (cancel, thing)
    assert cancel.target(thing, b"") == f"/v1/responses/{thing}/cancel".encode()


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "//",
        "*",
        "/v1",
        "/v1/responses/",
        "/v1/responses/{id}",
        "/v1/responses/{id}/cancel",
        "/v1/reasoning/{id}",
        "/v1/reasoning/resp_1",
        "/v1/responses/0-0123456789abcdef0123456789abcdef",
        "/v1/responses//cancel",
        "/v1/responses/resp_a/",
        "/v1/responses/resp_a/cancel/",
        "/v1/responses/a",
        "/v1/responses/render",
        "/v1/responses/resp_",
        "/v1/responses/cancel",
        "/v1/responses/resp_a/b",
        "/v1/responses/resp_a/b/cancel",
        "/v1/responses/resp_a/input_items",
        "/v1/responses/..",
        "/v1/responses/../metrics",
        "/v1/responses/.",
        "/v1/responses/resp_a.b",
        "/v1/responses/resp_a%2fb",
        "/v1/responses/resp_a%2e%2e",
        "/v1/responses/resp_a;b",
        "/v1/responses/resp_a b",
        "/v1/responses/resp_a\n",
        "/v1/responses/resp_\u00e9",
        "/v1/responses/resp_" + "x" * 124,
        "/V1/responses/resp_a",
        "/v1/Responses/resp_a",
        "//v1/responses/resp_a",
        "/v1/responses/resp_a/CANCEL",
        "/v1/{id}",
        "/{id}",
    ],
)
def test_any_other_spelling_is_nothing(path: str) -> None:
    assert locate(ENDPOINTS, path) is None


@given(path=st.text(max_size=60) | st.from_regex(r"/[a-z0-9_/.%;{}\-]{0,60}", fullmatch=True))
def test_whatever_is_found_leads_to_a_target_of_the_map(path: str) -> None:
    found = locate(ENDPOINTS, path)
    if found is not None:
        endpoint, thing = found
        assert endpoint.target(thing, b"").decode() == path
        assert bool(thing) is endpoint.owned
        assert not thing or ID.fullmatch(thing)


@pytest.mark.parametrize(
    "query,expected",
    [
        ("", b""),
        ("beta=true", b""),
        ("stream=true", b"stream=true"),
        ("starting_after=7&stream=true&x=%0d%0a", b"stream=true&starting_after=7"),
        ("stream=true&stream=false", b"stream=false"),
    ],
)
def test_only_named_parameters_of_a_query_are_sent_on(query: str, expected: bytes) -> None:
    assert checked_query(RESPONSE, query) == expected


@pytest.mark.parametrize(
    "query", ["stream=maybe", "stream=", "stream", "starting_after=-1", "starting_after=1%20", "starting_after=\u0661"]
)
def test_a_value_that_is_none_is_refused(query: str) -> None:
    with pytest.raises(BadRequest, match="in the query is no value"):
        checked_query(RESPONSE, query)


def test_errors_have_the_shape_of_their_endpoint() -> None:
    assert ENDPOINTS["/v1/messages/count_tokens"].error_dialect is Dialect.MESSAGES
    assert ENDPOINTS["/v1/messages"].error_dialect is Dialect.MESSAGES
    assert ENDPOINTS["/tokenize"].error_dialect is Dialect.OPAQUE
    assert ENDPOINTS["/health"].error_dialect is None


def test_only_opaque_answers_are_never_streams() -> None:
    assert {e.name for e in ENGINE if e.streams} == {
        "chat", "completions", "responses", "response", "response_cancel", "messages", "transcriptions", "translations",
    }  # fmt: skip


@pytest.mark.parametrize(
    "path, meant",
    [
        ("/chat/completions", "/v1/chat/completions"),
        ("/responses/resp_1", "/v1/responses/resp_1"),
        ("/v1/v1/messages", "/v1/messages"),
        ("/v1/v1/v1/messages", ""),
        ("/v1/nothing", ""),
        ("/docs", ""),
        ("", ""),
        ("*", ""),
    ],
)
def test_what_a_wrong_base_url_meant_is_found(path: str, meant: str) -> None:
    assert nearest(ENDPOINTS, path) == meant
