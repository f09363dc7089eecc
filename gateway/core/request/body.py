"""A request body: parsed once, at its top level only, and written again for the backend.

Station admit.  Values that the gateway does not need stay raw bytes.  What goes upstream is always re-emitted from
the parse, so that both sides see the same object even with duplicate keys (the last one counts, as in Python's own
parser on the other side).  Leaves to the engine whatever the engine decides better: missing or wrong fields that do
not concern the gateway are passed on for its own 400.  Nothing that a body can hold may keep the process busy for
long: skipping a value costs nothing, but each key and each list entry that is taken apart is an object.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec
from msgspec import Raw, Struct, structs

from gateway.core.stream.summary import Dialect, RequestShape
from gateway.errors import BadRequest

_T = TypeVar("_T")

_SEVERAL: Final = re.compile(rb"\[\s*[\"\[]")
JSON: Final = b"application/json"
_SEVERAL_CHOICES: Final = (Dialect.CHAT, Dialect.COMPLETIONS)
_STREAM_OPTIONS: Final = b'{"include_usage":true}'

MAX_SHORT_BYTES: Final = 1024 * 1024
"""Of a body with very many quotes, outside of the fields that may be long.  A prompt's entries are counted up to this
length."""

MAX_KEYS: Final = 200_000
"""A body with fewer than twice so many quotes cannot hold more keys: they take 0.2 s and are nobody's request."""

MAX_OPTIONS_BYTES: Final = 4096
"""Of ``stream_options`` that the gateway would add to."""

MOST_TOKENS: Final = 2**40
"""Of one answer, whatever its client says: sums of a thousand such numbers are exact in a float, and fit a message."""

MAY_BE_LONG: Final = (
    "messages",
    "prompt",
    "suffix",
    "tools",
    "functions",
    "documents",
    "response_format",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "chat_template",
    "chat_template_kwargs",
    "logit_bias",
    "allowed_token_ids",
    "bad_words",
    "prompt_embeds",
    "kv_transfer_params",
    "mm_processor_kwargs",
    "vllm_xargs",
    "input",
    "instructions",
    "previous_input_messages",
    "system",
    "query",
    "queries",
    "items",
    "data",
    "data_1",
    "data_2",
    "text_1",
    "text_2",
    "tokens",
)
"""Fields, of whichever endpoint, that hold text, schemas or data of any length."""


class ParsedBody(Struct, frozen=True):
    """What the gateway read of a body.

    ``model`` is "" when the client named none (or not as text: the engine then answers); ``asked_usage`` says that
    the client itself asked for the usage event.  A form goes upstream as it came, so it is kept ``whole``; its short
    texts are ``fields`` too, as JSON; ``model_at`` is where its model stands.  ``media_type`` is "" where there is no
    body.
    """

    fields: dict[str, Raw]
    model: str
    shape: RequestShape
    asked_usage: bool = False
    media_type: bytes = JSON
    whole: bytes = b""
    model_at: tuple[int, int] = (0, 0)


def no_body(*, stream: bool) -> ParsedBody:
    """Of a request that has none: it asks for what was made before."""
    return ParsedBody(fields={}, model="", shape=RequestShape(stream=stream, replay=True), media_type=b"")


def parse_body(data: bytes, dialect: Dialect) -> ParsedBody:
    """Parse a JSON object.  Raises BadRequest for anything else."""
    if not data:
        raise BadRequest("the request body is empty, not a JSON object")
    try:
        if len(data) > MAX_SHORT_BYTES:
            _check_short(data)
        fields = _FIELDS.decode(data)
    except RecursionError:
        raise BadRequest("the request body is nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadRequest(f"the request body is not a JSON object: {_where(error)}") from None
    stream = "stream" in fields and dialect is not Dialect.OPAQUE and _is_yes(_read(fields, "stream", _SCALAR))
    options = _read(fields, "stream_options", _OPTIONS)
    asked_usage = options is not None and _is_yes(options.include_usage)
    return ParsedBody(
        fields=fields,
        model=_read(fields, "model", _TEXT) or "",
        shape=RequestShape(
            stream=stream,
            n=_choices(fields, dialect),
            logprobs=_asks_logprobs(fields, dialect),
            token_ids=_read(fields, "return_token_ids", _BOOL) or False,
            structured=not _STRUCTURED.isdisjoint(fields) and _asks_structure(fields),
            # Without include_usage vLLM ignores it, and so it must stay when the gateway asks for usage.
            continuous_usage=options is not None and asked_usage and _is_yes(options.continuous_usage_stats),
        ),
        asked_usage=asked_usage,
    )


def given_salt(body: ParsedBody) -> str:
    """The client's own ``cache_salt``, "" when there is none."""
    return _read(body.fields, "cache_salt", _TEXT) or ""


def salted(body: ParsedBody, salt: str) -> ParsedBody:
    """``body`` with ``cache_salt``: prompts share an engine's prefix cache only with those of the same salt."""
    return structs.replace(body, fields={**body.fields, "cache_salt": Raw(msgspec.json.encode(salt))})


def renamed(body: ParsedBody, model: str) -> ParsedBody:
    """The same request for another ``model``."""
    start, end = body.model_at
    if body.whole and end:
        body = structs.replace(body, whole=body.whole[:start] + model.encode() + body.whole[end:])
    return structs.replace(body, fields={**body.fields, "model": Raw(msgspec.json.encode(model))}, model=model)


def emit_body(body: ParsedBody, *, inject_usage: bool) -> bytes:
    """The body for the backend; ``inject_usage`` asks for the usage event on the client's behalf."""
    if body.media_type != JSON:
        return body.whole
    if not inject_usage:
        return msgspec.json.encode(body.fields)
    fields = dict(body.fields)
    options = _read(fields, "stream_options", _FIELDS)
    if options:
        options["include_usage"] = Raw(b"true")
        options.pop("continuous_usage_stats", None)
        fields["stream_options"] = Raw(msgspec.json.encode(options))
    else:
        fields["stream_options"] = Raw(_STREAM_OPTIONS)
    return msgspec.json.encode(fields)


def may_inject_usage(body: ParsedBody, dialect: Dialect) -> bool:
    """Whether usage has to be asked for on the client's behalf: only chat and completions streams know the option.

    A ``stream_options`` that is neither absent, null nor an object is left alone: the engine refuses it.  Raises
    BadRequest for one of such a length that nothing can be added to it: its answer would cost its key no prompt.
    """
    if dialect not in (Dialect.CHAT, Dialect.COMPLETIONS) or not body.shape.stream or body.asked_usage:
        return False
    options = body.fields.get("stream_options")
    if options is None:
        return True
    if _length(options) > MAX_OPTIONS_BYTES:
        raise BadRequest(f"stream_options is over {MAX_OPTIONS_BYTES} bytes", param="stream_options")
    return bytes(options) == b"null" or _read(body.fields, "stream_options", _FIELDS) is not None


def previous_response(body: ParsedBody) -> str:
    """The id of the response that this one goes on from, "" where there is none or it is no text."""
    return _read(body.fields, "previous_response_id", _TEXT) or ""


def is_stored(body: ParsedBody) -> bool:
    """Whether the answer may be asked for again: unless the client says ``store: false``."""
    return _read(body.fields, "store", _BOOL) is not False


def asks_background(body: ParsedBody) -> bool:
    """Whether the response may be made in the background: whatever an engine could take for a yes."""
    raw = body.fields.get("background")
    return raw is not None and bytes(raw) not in _SAYS_NO


def most_output_tokens(body: ParsedBody) -> int:
    """How many tokens an answer of `/v1/responses` may have, `MOST_TOKENS` at most; 0 where the client does not say."""
    return min(max(0, _read(body.fields, "max_output_tokens", _INT) or 0), MOST_TOKENS)


_SAYS_NO: Final = frozenset({b"null", b"false", b"0"})
_SCHEMA: Final = b'"json_'
_IN_PARTS: Final = MappingProxyType({"text": _SCHEMA, "output_config": b'"format"'})
"""Where Responses and Messages ask for structure: inside an object, next to what is none."""

_STRUCTURED: Final = frozenset(
    {"response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", *_IN_PARTS}
)


class _StreamOptions(Struct):
    include_usage: bool | float | str | None = None
    continuous_usage_stats: bool | float | str | None = None


def _is_yes(value: object) -> bool:
    """Whether pydantic, by which the engine reads, takes a value for true."""
    return value.lower() in _YES if isinstance(value, str) else value == 1


_YES: Final = frozenset({"1", "on", "t", "true", "y", "yes"})

# Decoders made once: msgspec works a type out anew at each call of its function.
_FIELDS: Final = msgspec.json.Decoder(dict[str, Raw])
_LIST: Final = msgspec.json.Decoder(list[Raw])
_OPTIONS: Final = msgspec.json.Decoder(_StreamOptions)
_SCALAR: Final = msgspec.json.Decoder(bool | float | str)
_BOOL: Final = msgspec.json.Decoder(bool, strict=False)
_TEXT: Final = msgspec.json.Decoder(str)
_INT: Final = msgspec.json.Decoder(int, strict=False)


_LONG: Final = msgspec.json.Decoder(msgspec.defstruct("_Long", [(name, Raw, Raw()) for name in MAY_BE_LONG]))


def _length(raw: Raw) -> int:
    return len(memoryview(raw))


def _check_short(data: bytes) -> None:
    """Refuse a body that is long where none has to be, before an object is made of each of its keys."""
    if data.count(b'"') <= 2 * MAX_KEYS:
        return  # so few quotes cannot be many keys: whatever is long is a value, and values stay raw
    found = _LONG.decode(data)
    short_bytes = len(data) - sum(_length(getattr(found, name)) for name in MAY_BE_LONG)
    if short_bytes > MAX_SHORT_BYTES:
        raise BadRequest(f"{short_bytes} bytes of the request body are in no field that may be long; 1 MiB may be")


def _read(fields: dict[str, Raw], name: str, kind: msgspec.json.Decoder[_T]) -> _T | None:
    """Field ``name`` when it is there and of the decoder's type, else None."""
    raw = fields.get(name)
    if raw is None:
        return None
    try:
        return kind.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _present(fields: dict[str, Raw], name: str) -> bool:
    raw = fields.get(name)
    return raw is not None and bytes(raw) not in (b"null", b"[]", b"{}")


def _asks_structure(fields: dict[str, Raw]) -> bool:
    return any(
        _IN_PARTS[name] in bytes(fields[name]) if name in _IN_PARTS else _present(fields, name)
        for name in _STRUCTURED & fields.keys()
    )


def _asks_logprobs(fields: dict[str, Raw], dialect: Dialect) -> bool:
    if dialect is Dialect.RESPONSES:
        return "include" in fields and b"logprobs" in bytes(fields["include"])
    raw = fields.get("logprobs")
    return raw is not None and bytes(raw) not in (b"null", b"false")


def _choices(fields: dict[str, Raw], dialect: Dialect) -> int:
    n = _read(fields, "n", _INT) or 1 if "n" in fields and dialect in _SEVERAL_CHOICES else 1
    if dialect is not Dialect.COMPLETIONS:
        return max(1, n)
    prompt = fields.get("prompt")
    # A list of texts or of lists is as many prompts as it has entries; a list of token numbers, however long, is one.
    if prompt is None or _length(prompt) > MAX_SHORT_BYTES or not _SEVERAL.match(memoryview(prompt)):
        return max(1, n)
    prompts = _read(fields, "prompt", _LIST)
    return max(1, n) * max(1, len(prompts) if prompts is not None else 1)


def _where(error: Exception) -> str:
    """The parser's complaint, which names positions and types, cut short; it never quotes the body."""
    return str(error).split("\n", 1)[0][:200]
