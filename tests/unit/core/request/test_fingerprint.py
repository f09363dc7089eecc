"""A request's fingerprint: equal for equal work, different for anything else."""

from __future__ import annotations

import pytest
from msgspec import Raw

from gateway.core.request.body import ParsedBody, no_body, parse_body, renamed
from gateway.core.request.fingerprint import fingerprint
from gateway.core.stream.summary import Dialect, RequestShape


def of(text: str) -> str:
    return fingerprint(parse_body(text.encode(), Dialect.CHAT))


PLAIN = of('{"model":"m","messages":[{"role":"user","content":"x"}]}')


@pytest.mark.parametrize(
    "text",
    [
        '{"messages":[{"role":"user","content":"x"}],"model":"m"}',
        '{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}',
        '{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"x"}]}',
        '{"model":"m","request_id":"r","stream_interval":4,"messages":[{"role":"user","content":"x"}]}',
    ],
)
def test_the_order_of_fields_and_how_the_answer_is_sent_do_not_count(text: str) -> None:
    assert of(text) == PLAIN


@pytest.mark.parametrize(
    "text",
    [
        '{"model":"n","messages":[{"role":"user","content":"x"}]}',
        '{"model":"m","messages":[{"role":"user","content":"y"}]}',
        '{"model":"m","messages":[{"role":"user","content":"x"}],"max_tokens":1}',
        '{"model":"m","prompt":[{"role":"user","content":"x"}]}',
        '{"model":"m"}',
    ],
)
def test_everything_else_does(text: str) -> None:
    assert of(text) != PLAIN


@pytest.mark.parametrize("at", [0, 1000, 150_000, 299_999])
def test_of_a_very_long_value_samples_count_and_its_length(at: int) -> None:
    def long(*, changed: str, length: int = 300_000) -> str:
        text = "x" * at + changed + "x" * (length - at - 1)
        return of(f'{{"prompt":"{text}"}}')

    assert long(changed="x") == long(changed="x")
    assert (long(changed="y") != long(changed="x")) is (at != 150_000), "between two samples nobody looks"
    assert long(changed="x", length=300_001) != long(changed="x")


def form(audio: bytes, boundary: bytes) -> str:
    whole = b"--%b\r\n%b\r\n--%b--\r\n" % (boundary, audio, boundary)
    fields = {"model": Raw(b'"m"')}
    shape = RequestShape(stream=False)
    return fingerprint(ParsedBody(fields, "m", shape, media_type=b"multipart/form-data", whole=whole))


def test_a_form_is_known_by_what_is_in_it_and_not_by_its_boundary() -> None:
    audio = bytes(range(256)) * 40
    assert form(audio, b"one") == form(audio, b"two")
    assert form(audio, b"one") != form(audio[::-1], b"one")
    assert form(audio, b"one") != form(audio + b"x", b"one")


def test_requests_without_a_body_are_not_taken_for_one_another() -> None:
    assert fingerprint(no_body(stream=False)) == ""


def test_it_is_sixteen_digits_of_the_body_as_it_goes_upstream() -> None:
    assert len(PLAIN) == 16
    assert int(PLAIN, 16) >= 0
    body = parse_body(b'{"model":"alias"}', Dialect.CHAT)
    assert fingerprint(renamed(body, "m")) == of('{"model":"m"}')


def test_names_and_values_cannot_run_into_each_other() -> None:
    assert of('{"a":12,"b":3}') != of('{"a":1,"b":23}')
