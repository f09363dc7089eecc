"""Media that an engine would fetch or unpack: found where the engine looks, and nowhere else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.request.body import parse_body
from gateway.core.request.media import MAX_ENTRIES, check_media, may_hold_media
from gateway.core.stream.summary import Dialect
from gateway.errors import BadRequest

DATA = "data:image/png;base64,AAAA"


def checked(fields: dict[str, Any] | bytes, *, remote: bool = False, embeds: bool = False) -> None:
    body = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    check_media(parse_body(body, Dialect.CHAT).fields, remote=remote, embeds=embeds)


def user(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


def places(url: Any) -> dict[str, dict[str, Any]]:
    """Every place where vLLM 0.32 reads a medium's URL."""
    image = {"type": "image_url", "image_url": {"url": url}}
    return {
        "image": user(image),
        "image beside text": user({"type": "text", "text": "see"}, image),
        "image, short form": user({"type": "image_url", "image_url": url}),
        "image without a type": user({"image_url": url}),
        "image with a uuid": user({"type": "image_url", "uuid": "x", "image_url": {"url": url}}),
        "audio": user({"type": "audio_url", "audio_url": {"url": url}}),
        "video": user({"type": "video_url", "video_url": {"url": url}}),
        "part without a list": {"messages": [{"role": "user", "content": image}]},
        "batch of conversations": {"messages": [[{"role": "user", "content": [image]}]]},
        "second message": {"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": [image]}]},
        "responses": {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]},
        "responses, file": {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": url}]}]},
        "responses, tool output": {
            "input": [{"type": "function_call_output", "output": [{"type": "input_image", "image_url": url}]}]
        },
        "responses, computer": {
            "input": [{"type": "computer_call_output", "output": {"type": "screenshot", "image_url": url}}]
        },
        "messages": user({"type": "image", "source": {"type": "url", "url": url}}),
        "messages, tool result": user(
            {"type": "tool_result", "content": [{"type": "image", "source": {"type": "url", "url": url}}]}
        ),
        "messages, system": {"system": [{"type": "image", "source": {"type": "url", "url": url}}]},
        "score": {"queries": "a", "documents": {"content": [image]}},
        "score, pair": {"text_1": "a", "text_2": {"content": [image]}},
        "rerank": {"query": {"content": [image]}, "documents": ["a"]},
        "rerank, list": {"query": "a", "documents": [{"content": [image]}]},
        "embeddings, chat input": {"input": [{"role": "user", "content": [image]}]},
    }


@pytest.mark.parametrize("place", places(""))
@pytest.mark.parametrize(
    "url", ["http://10.0.0.1/", "https://x/a.png", "HTTPS://x", "file:///etc/passwd", "ftp://x", "x", " data:a"]
)
def test_a_medium_from_elsewhere_is_refused_wherever_it_stands(place: str, url: str) -> None:
    with pytest.raises(BadRequest, match=r"is no data: URL; .* \(parameters\.remote_media\)") as caught:
        checked(places(url)[place])
    assert caught.value.param in places(url)[place]
    assert "passwd" not in caught.value.message
    checked(places(url)[place], remote=True)


@pytest.mark.parametrize("place", places(""))
@pytest.mark.parametrize("url", [DATA, "DATA:,a", "", None])
def test_a_medium_inside_the_request_passes(place: str, url: str | None) -> None:
    checked(places(url)[place])


@pytest.mark.parametrize("place", places(""))
def test_every_letter_may_be_written_as_an_escape(place: str) -> None:
    text = json.dumps(places("http://x/")[place])
    for plain, escaped in (
        ("url", "\\u0075rl"),
        ("url", "ur\\u006C"),
        ("http", "\\u0068ttp"),
        ("image", "im\\u0061ge"),
    ):
        with pytest.raises(BadRequest):
            checked(text.replace(plain, escaped).encode())


@pytest.mark.parametrize("kind", ["prompt_embeds", "image_embeds", "audio_embeds", "video_embeds"])
def test_tensors_in_parts_are_refused(kind: str) -> None:
    for part in ({"type": kind, kind: "AAAA"}, {"type": kind, "data": "AAAA"}, {kind: {"a": "AAAA"}}):
        with pytest.raises(BadRequest, match=rf"{kind} in messages is not allowed here \(parameters.embeds\)"):
            checked(user(part))
        checked(user(part), embeds=True)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"messages": "no list"},
        {"messages": [1, None, "x", {"content": 7}]},
        {"messages": [{"role": "user", "content": 'the "url" and image_url": "http://x"'}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": '{"image_url":"http://x"}'}}]}]},
        user({"type": "tool_use", "input": {"image_url": "http://x", "url": "http://x"}}),
        user({"type": "text", "text": "http://x", "uri_url": "http://x"}),
        {"tools": [{"function": {"parameters": {"properties": {"image_url": {"type": "string"}}}}}]},
        {"metadata": {"url": "http://x"}},
        {"input": ["embed this url", "image_url"]},
        {"messages": [{"role": "user", "content": "\u00e9\u0141\u2028"}]},
    ],
)
def test_words_and_tool_arguments_are_no_media(fields: dict[str, Any]) -> None:
    checked(fields)


def test_something_else_in_the_place_of_a_url_is_refused() -> None:
    for url in (7, ["http://x"], True):
        with pytest.raises(BadRequest):
            checked(user({"type": "image_url", "image_url": url}))
    with pytest.raises(BadRequest):
        checked(user({"type": "image_url", "image_url": {"url": ["http://x"]}}))


def test_one_may_be_allowed_without_the_other() -> None:
    image = {"type": "image_url", "image_url": {"url": "http://x/"}}
    tensor = {"type": "image_embeds", "image_embeds": "AAAA"}
    checked(user(image, {"image_url": "http://x/"}), remote=True)
    checked(user(tensor), embeds=True)
    with pytest.raises(BadRequest, match="embeds"):
        checked(user(image, tensor), remote=True)
    with pytest.raises(BadRequest, match="remote_media"):
        checked(user(image, tensor), embeds=True)


def test_the_work_is_bounded() -> None:
    parts = b'{"a":1},' * (MAX_ENTRIES + 10)
    with pytest.raises(BadRequest, match="more than 20000 messages and parts"):
        checked(b'{"messages":[{"content":[' + parts + b'{"image_url":"data:"}]}]}')
    deep = b'{"content":[' * 30 + b'{"image_url":"http://x"}' + b"]}" * 30
    checked(b'{"messages":[' + deep + b"]}")  # no engine looks so deep


def test_a_long_field_is_read_a_few_times_and_no_more() -> None:
    """Each level is another reading of all that is in it."""
    long = b'{"text":"' + b"x" * 2_000_000 + b'","image_url":"data:x"}'
    for levels, fits in ((2, True), (11, False)):
        body = b'{"messages":[{"content":' + b'{"content":' * levels + long + b"}" * levels + b"}]}"
        if fits:
            checked(body)
        else:
            with pytest.raises(BadRequest, match="nested too deeply in so long a field"):
                checked(body)


def test_a_key_outside_of_messages_costs_a_look_and_is_no_medium() -> None:
    tools = [{"type": "function", "function": {"parameters": {"properties": {"url": {"type": "string"}}}}}]
    checked({"messages": [{"role": "user", "content": "x"}], "tools": tools})
    assert may_hold_media(json.dumps(tools).encode(), remote=False, embeds=False)
    assert not may_hold_media(json.dumps(tools).encode(), remote=True, embeds=False)
