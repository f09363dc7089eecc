"""The shapes that engine answers share across dialects, read leniently and only as far as they are needed.

Inside the tap.  Usage and metrics ride on few events and may have any shape on a foreign engine, so they are kept
raw when they pass and decoded here, where a wrong shape means "not known" and costs no other field.  Must not keep
text: of errors only code and type leave, short and printable.
"""

from __future__ import annotations

from typing import Final, TypeVar

from msgspec import DecodeError, Raw, Struct, json

from gateway.core.stream.summary import EngineError, EngineMetrics

# What msgspec raises for bytes that are not the JSON that was expected; the second for nesting beyond reason.
UNREADABLE: Final = (DecodeError, RecursionError)

# The default of raw fields: an object of its own, so that "not there" is a matter of identity.
ABSENT: Final = Raw()
_NULL: Final = Raw(b"null")

ENGINE_DEAD_WORDS: Final = b"EngineCore encountered an issue"
"""With these vLLM's server says that its engine has died, in a stream or with status 500 (0.26 to 0.32)."""

_WORD_CHARS: Final = 64
_MOST_TOKENS: Final = 2**40  # beyond it a count is no count, and would not fit into a message
_MOST: Final = 1e9  # beyond it a figure is none: 11 days in milliseconds

_T = TypeVar("_T")


class Usage(Struct, frozen=True, gc=False, kw_only=True):
    """Token counts as the engine gave them, whatever the dialect calls them; None where it gave none."""

    prompt: int | None = None
    cached: int | None = None
    completion: int | None = None
    reasoning: int | None = None


class _Details(Struct, gc=False):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _WireUsage(Struct, gc=False):
    """The union of what the four dialects call usage."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Details | None = None
    output_tokens_details: _Details | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _WireSpeculative(Struct, gc=False):
    mean_acceptance_length: float | None = None
    draft_acceptance_rate: float | None = None
    num_spec_tokens: int | None = None


class _WireMetrics(Struct, gc=False):
    time_to_first_token_ms: float | None = None
    generation_time_ms: float | None = None
    queue_time_ms: float | None = None
    mean_itl_ms: float | None = None
    tokens_per_second: float | None = None
    speculative_decoding: _WireSpeculative | None = None


class _WireError(Struct, gc=False):
    code: int | str | None = None
    type: str | None = None
    message: Raw = ABSENT


def is_given(raw: Raw) -> bool:
    """Whether a raw field was there and not null."""
    return raw is not ABSENT and raw != _NULL


def utf8_bytes(text: str) -> int:
    """Return the length of ``text`` in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def word(text: str) -> str:
    """Make an engine's word fit to be recorded: short and printable."""
    return text[:_WORD_CHARS] if text.isprintable() else "unprintable"


def read_usage(raw: bytes | Raw | None) -> Usage | None:
    """Decode a usage object of any dialect; None where it is absent or no such object.

    Messages count cached prompt tokens apart from input_tokens: they are added up, as everywhere else.
    """
    wire = _decode(raw, _USAGE)
    if wire is None:
        return None
    prompt_details = wire.prompt_tokens_details or wire.input_tokens_details or _Details()
    completion_details = wire.completion_tokens_details or wire.output_tokens_details or _Details()
    cached = wire.cache_read_input_tokens
    prompt = wire.prompt_tokens
    if prompt is None and wire.input_tokens is not None:
        prompt = wire.input_tokens + (cached or 0) + (wire.cache_creation_input_tokens or 0)
    return Usage(
        prompt=_count(prompt),
        cached=_count(prompt_details.cached_tokens if cached is None else cached),
        completion=_count(wire.output_tokens if wire.completion_tokens is None else wire.completion_tokens),
        reasoning=_count(completion_details.reasoning_tokens),
    )


def read_metrics(raw: bytes | Raw | None) -> EngineMetrics | None:
    """Decode the engine's per-request metrics; None where there are none.  A figure that cannot be is left out."""
    wire = _decode(raw, _METRICS)
    if wire is None:
        return None
    speculative = wire.speculative_decoding or _WireSpeculative()
    metrics = EngineMetrics(
        time_to_first_token_ms=_figure(wire.time_to_first_token_ms),
        generation_time_ms=_figure(wire.generation_time_ms),
        queue_time_ms=_figure(wire.queue_time_ms),
        mean_itl_ms=_figure(wire.mean_itl_ms),
        tokens_per_second=_figure(wire.tokens_per_second),
        mean_acceptance_length=_figure(speculative.mean_acceptance_length),
        draft_acceptance_rate=_figure(speculative.draft_acceptance_rate),
        spec_tokens=_count(speculative.num_spec_tokens),
    )
    return None if metrics == EngineMetrics() else metrics


def read_error(raw: bytes | Raw) -> EngineError:
    """Take code and type of an error object, and whether it says that the engine is dead; others have neither."""
    wire = _decode(raw, _ERROR)
    if wire is None:
        return EngineError()
    return EngineError(
        code=None if wire.code is None else word(str(wire.code)),
        type=None if wire.type is None else word(wire.type),
        fatal=ENGINE_DEAD_WORDS in bytes(wire.message),
    )


# Decoders made once: msgspec works a type out anew at each call of its function.
_USAGE: Final = json.Decoder(_WireUsage | None)
_METRICS: Final = json.Decoder(_WireMetrics | None)
_ERROR: Final = json.Decoder(_WireError | None)


def _decode(raw: bytes | Raw | None, decoder: json.Decoder[_T | None]) -> _T | None:
    if raw is None or raw is ABSENT:
        return None
    try:
        return decoder.decode(raw)
    except UNREADABLE:
        return None


def _count(tokens: int | None) -> int | None:
    return tokens if tokens is not None and 0 <= tokens <= _MOST_TOKENS else None


def _figure(value: float | None) -> float | None:
    return value if value is not None and 0 <= value <= _MOST else None
