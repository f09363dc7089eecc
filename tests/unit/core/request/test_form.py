"""Forms with a file: read like the engine reads them, and refused where the two could differ."""

from __future__ import annotations

import io
from typing import Any

import pytest
from aiohttp import FormData, MultipartWriter, payload
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.request.body import emit_body, renamed
from gateway.core.request.form import MAX_PARTS, boundary_of, parse_form
from gateway.errors import BadRequest

AUDIO = ("file", b"RIFF\r\n--nearly\r\n", 'filename="a.wav"')


def form(*parts: tuple[str, bytes | str] | tuple[str, bytes | str, str], boundary: str = "xyz") -> bytes:
    """A form; a third entry of a part is more of its Content-Disposition."""
    out = b""
    for name, value, *more in parts:
        data = value.encode() if isinstance(value, str) else value
        disposition = "; ".join([f'form-data; name="{name}"', *more])
        out += f"--{boundary}\r\nContent-Disposition: {disposition}\r\n\r\n".encode() + data + b"\r\n"
    return out + f"--{boundary}--\r\n".encode()


WHOLE = form(AUDIO, ("model", "tiny"), ("stream", "true"), ("language", "\u00e9"))


def test_a_form_is_read_and_goes_on_as_it_came() -> None:
    body = parse_form(WHOLE, "xyz")
    assert (body.model, body.shape.stream, body.asked_usage) == ("tiny", True, False)
    assert set(body.fields) == {"model", "stream", "language"}
    assert emit_body(body, inject_usage=False) == WHOLE
    assert body.media_type == b'multipart/form-data; boundary="xyz"'


@pytest.mark.parametrize(
    "value,stream",
    [
        ("true", True),
        ("True", True),
        ("1", True),
        ("on", True),
        ("false", False),
        ("", False),
        ("0", False),
        ("maybe", False),
    ],
)
def test_stream_is_read_as_the_engine_reads_it(value: str, stream: bool) -> None:
    assert parse_form(form(("stream", value)), "xyz").shape.stream is stream


def test_an_empty_value_a_list_and_headers_of_a_part_are_fine() -> None:
    raw = (
        b'--xyz\r\ncontent-disposition: form-data; name="file"; filename="\xc3\xa9.wav"; filename*=utf-8\'\'%C3%A9.wav\r\n'
        b"Content-Type: audio/wav\r\nContent-Length: 3\r\nContent-Transfer-Encoding: binary\r\n\r\nabc\r\n"
        b'--xyz\r\nContent-Disposition: form-data; name="prompt"\r\n\r\n\r\n'
        b'--xyz\r\nContent-Disposition: form-data; name="timestamp_granularities[]"\r\n\r\nword\r\n'
        b'--xyz\r\nContent-Disposition: form-data; name="timestamp_granularities[]"\r\n\r\nsegment\r\n--xyz--'
    )
    assert set(parse_form(raw, "xyz").fields) == {"prompt", "timestamp_granularities[]"}


@pytest.mark.parametrize(
    "data,says",
    [
        (b"", "does not begin"),
        (b"--xyz--\r\n", "does not begin"),
        (b"hello\r\n" + WHOLE, "does not begin"),
        (b"\r\n" + WHOLE, "does not begin"),
        (WHOLE.replace(b"\r\n", b"\n"), "does not begin"),
        (WHOLE[:-4], "a line of its own"),
        (WHOLE[:-8], "no end"),
        (WHOLE[:40], "no head"),
        (WHOLE + b"more", "goes on after its end"),
        (WHOLE + WHOLE, "goes on after its end"),
        (
            WHOLE.replace(
                b'--xyz\r\nContent-Disposition: form-data; name="model"',
                b'--xyz \r\nContent-Disposition: form-data; name="model"',
            ),
            "a line of its own",
        ),
        (form(("model", "a"), ("model", "b")), "model twice"),
        (form(("model", "a", 'filename="x"'), ("model", "b")), "model twice"),
        (form(("mo del", "a")), "no plain Content-Disposition"),
        (form(("", "a")), "no plain Content-Disposition"),
        (form(('a\\"; name=\\"model', "a")), "no plain Content-Disposition"),
        (form(("a", "a", 'name="model"')), "no plain Content-Disposition"),
        (form(("a", "a", "name*=utf-8''model")), "no plain Content-Disposition"),
        (form(("a", "a", 'filename="x\\"; name=\\"model"')), "no plain Content-Disposition"),
        (b"--xyz\r\n\r\nvalue\r\n--xyz--\r\n", "cannot be read in one way|no head|no plain"),
        (b"--xyz\r\nContent-Type: text/plain\r\n\r\nvalue\r\n--xyz--\r\n", "no plain Content-Disposition"),
        (
            b'--xyz\r\nContent-Disposition: form-data; name="a"\r\nContent-Disposition: form-data; name="model"\r\n\r\nv\r\n--xyz--\r\n',
            "in one way only",
        ),
        (b'--xyz\r\nContent-Disposition: form-data;\r\n name="a"\r\n\r\nv\r\n--xyz--\r\n', "in one way only"),
        (b'--xyz\r\nContent-Disposition : form-data; name="a"\r\n\r\nv\r\n--xyz--\r\n', "in one way only"),
        (
            b'--xyz\r\nContent-Disposition: form-data; name="model"\r\nContent-Transfer-Encoding: base64\r\n\r\ndGlueQ==\r\n--xyz--\r\n',
            "encoded for transfer",
        ),
        (form(("model", b"\xff")), "not UTF-8"),
        (form(("prompt", "x" * 70_000)), "longer than 65536"),
        (form(*[(f"f{i}", "x") for i in range(MAX_PARTS + 1)]), "more than 64 parts"),
        (
            b'--xyz\r\nContent-Disposition: form-data; name="a"\r\nX: ' + b"x" * 5000 + b"\r\n\r\nv\r\n--xyz--\r\n",
            "no head",
        ),
    ],
)
def test_what_two_parsers_could_read_differently_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        parse_form(data, "xyz")


def test_as_many_parts_as_allowed_pass() -> None:
    assert len(parse_form(form(*[(f"f{i}", "x") for i in range(MAX_PARTS)]), "xyz").fields) == MAX_PARTS


@pytest.mark.parametrize(
    "content_type,boundary",
    [
        ("multipart/form-data; boundary=xyz", "xyz"),
        ('multipart/form-data; boundary="x:y=z"', "x:y=z"),
        ("Multipart/Form-Data;boundary=----WebKitFormBoundary7MA4YWxkTrZu0gW", "----WebKitFormBoundary7MA4YWxkTrZu0gW"),
        ("multipart/form-data; charset=utf-8; boundary=xyz", "xyz"),
        ("multipart/form-data; boundary=xyz; charset=UTF-8", "xyz"),
        ("multipart/form-data; boundary=" + "b" * 70, "b" * 70),
    ],
)
def test_the_boundary_of_a_media_type(content_type: str, boundary: str) -> None:
    assert boundary_of(content_type) == boundary


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "application/json",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        'multipart/form-data; boundary=""',
        "multipart/form-data; boundary=" + "b" * 71,
        "multipart/form-data; boundary=a b",
        'multipart/form-data; boundary="a\\"b"',
        "multipart/form-data; boundary=a; boundary=b",
        "multipart/form-data; charset=utf-16; boundary=a",
        "multipart/form-data; boundary=a; charset=utf-16",
        "multipart/form-data; boundary*=utf-8''a",
        "multipart/mixed; boundary=a",
        "multipart/form-data; boundary=\u00e9",
    ],
)
def test_any_other_media_type_is_refused(content_type: str) -> None:
    with pytest.raises(BadRequest, match="must be multipart/form-data with a boundary"):
        boundary_of(content_type)


@given(
    texts=st.dictionaries(st.from_regex(r"[a-z_]{1,12}", fullmatch=True), st.text(max_size=40), max_size=6),
    audio=st.binary(max_size=300),
    boundary=st.from_regex(r"[A-Za-z0-9'()+_,\-./:=?]{1,70}", fullmatch=True),
)
def test_any_form_that_is_well_made_is_read(texts: dict[str, str], audio: bytes, boundary: str) -> None:
    dashes = b"--" + boundary.encode()
    parts: list[Any] = [("file", audio, 'filename="x"'), *((k, v) for k, v in texts.items() if k != "file")]
    if any(dashes in (v.encode() if isinstance(v, str) else v) for _, v, *_ in parts):
        return
    body = parse_form(form(*parts, boundary=boundary), boundary_of(f'multipart/form-data; boundary="{boundary}"'))
    assert set(body.fields) == {k for k in texts if k != "file"}
    assert body.model == texts.get("model", "")


@given(data=st.binary(max_size=200), at=st.integers(0, len(WHOLE)), length=st.integers(0, 30))
def test_damage_is_refused_or_changes_nothing_that_counts(data: bytes, at: int, length: int) -> None:
    for damaged in (data, WHOLE[:at] + data[:20] + WHOLE[at + length :]):
        try:
            body = parse_form(damaged, "xyz")
        except BadRequest:
            continue
        assert emit_body(body, inject_usage=False) == damaged


@pytest.mark.asyncio
async def test_what_a_common_library_writes_is_read() -> None:
    data = FormData({"model": "tiny", "stream": "true", "prompt": "caf\u00e9"})
    data.add_field("file", io.BytesIO(b"\x00\x01RIFF"), filename="my file.wav", content_type="audio/wav")
    writer = data()
    assert isinstance(writer, MultipartWriter | payload.Payload)
    sink = _Sink()
    await writer.write(sink)  # type: ignore[arg-type]
    body = parse_form(
        bytes(sink.data),
        boundary_of(writer.content_type if "boundary" in writer.content_type else str(writer.headers["Content-Type"])),
    )
    assert (body.model, body.shape.stream) == ("tiny", True)
    assert set(body.fields) == {"model", "stream", "prompt"}


class _Sink:
    """What aiohttp writes a body to."""

    def __init__(self) -> None:
        self.data = bytearray()

    async def write(self, chunk: bytes) -> None:
        self.data += chunk


def test_the_model_of_a_form_can_be_renamed_and_nothing_else_changes() -> None:
    body = renamed(parse_form(WHOLE, "xyz"), "org/other-1")
    assert body.model == "org/other-1"
    sent = emit_body(body, inject_usage=False)
    assert sent == WHOLE.replace(b"\r\n\r\ntiny\r\n", b"\r\n\r\norg/other-1\r\n")
    assert parse_form(sent, "xyz").model == "org/other-1"
