"""The wide event of a settled request: a record and its summary as one flat object.

Made at ingest for the log and the live feed.  Fields bear the names of the record; what is not known is left out, and
instants of a worker's clock are not told, since they mean nothing outside it.  Must not know where it is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct

from gateway.core.link.messages import RequestRecord
from gateway.core.stream.skew import decode_skew
from gateway.core.stream.summary import EngineError, EngineMetrics, StreamSummary

_RECORD: Final = {
    "request_id": "`X-Request-Id` of the answer",
    "slot": "number of the worker's slot",
    "accepted_wall": "when the request's head was complete, in seconds since 1970",
    "endpoint": "the endpoint's name on the map",
    "method": "HTTP method",
    "status": "status that the client got",
    "outcome": "ok, client_gone, upstream_error, upstream_timeout, rejected or shutdown",
    "ending": "how the exchange with the backend ended",
    "stream": "whether a stream was asked for",
    "model": "the model that was asked for",
    "pool": "pool that it was routed to",
    "backend": "backend that answered, or that was tried last",
    "profile": "profile under which the backend runs; later: so far none has one",
    "key_id": "id of the client's key, never the key; none where clients need no keys",
    "error_code": "code of the error that the client was told",
    "error_reason": "the gateway's own sentence about it, where the fault is not the client's",
    "attempts": "backends that were tried",
    "injected": "whether usage was asked for on the client's behalf",
    "alone": "no other request of this worker was on the backend between sent and ended",
    "request_bytes": "body received",
    "response_bytes": "body sent",
    "queue_s": "waiting for a place on a backend",
    "upload_s": "time spent receiving the body",
    "sent_s": "accepted to request fully written to the backend",
    "headers_s": "accepted to the backend's status line",
    "ttft_s": "accepted to the first token",
    "ttfv_s": "accepted to the first visible token",
    "last_token_s": "accepted to the last token",
    "total_s": "accepted to the end",
    "gateway_s": "accepted to sent, less queue and upload: the gateway's own share",
    "hold_max_s": "longest that bytes were held back for an event to become whole",
    "blocked_s": "how long the client did not take bytes",
}

_SUMMARY: Final = {
    "events": "events of the stream, comments not among them",
    "chunks": "events with tokens in them",
    "choices": "choices in the answer",
    "bad_events": "events that could not be read",
    "oversize_events": "events too large to be read",
    "prompt_tokens": "by the engine",
    "cached_tokens": "part of the prompt that came from the prefix cache",
    "completion_tokens": "all that was generated",
    "reasoning_tokens": "of these, thought",
    "content_tokens": "of these, visible",
    "total_exactness": "exact, estimated or unknown: how far completion_tokens can be trusted",
    "split_exactness": "the same for reasoning_tokens and content_tokens",
    "decode_tps": "(completion_tokens - 1) / decode window",
    "reasoning_tps": "reasoning tokens / time in which they came",
    "visible_tps": "content tokens / time in which they came",
    "effective_visible_tps": "content tokens / decode window",
    "step_time_s": "one decode step of the engine",
    "reasoning_share": "reasoning tokens / completion tokens",
    "gap_p50_s": "median time between chunks",
    "gap_p99_s": "99th percentile of it",
    "gap_max_s": "longest time between chunks",
    "silence_s": "last event to the end of the stream",
    "finish_reasons": "the engine's own, in order of arrival",
    "done_marker": "whether the end marker came",
    "terminal": "whether the engine finished the answer itself",
    "flags": "what a reader of the numbers has to know",
}

_DERIVED: Final = {
    "decode_window_s": "first event to the event with the finish reason",
    "decode_skew": "decode_tps / (1000 / engine_mean_itl_ms), of one choice with exact counts: 1 when both agree",
}

_ENGINE: Final = {
    "engine_time_to_first_token_ms": "the engine's own figure; starts at scheduling",
    "engine_generation_time_ms": "the engine's own figure",
    "engine_queue_time_ms": "the engine's own figure",
    "engine_mean_itl_ms": "the engine's own figure; 1000 / decode_tps",
    "engine_tokens_per_second": "the engine's own figure; includes prefill, not a rate to use",
    "engine_mean_acceptance_length": "with speculative decoding",
    "engine_draft_acceptance_rate": "with speculative decoding",
    "engine_spec_tokens": "with speculative decoding",
}

_ERROR: Final = {
    "engine_error_code": "code of an error that the engine sent inside its answer",
    "engine_error_type": "type of that error",
    "engine_error_fatal": "whether it says that the engine is dead",
}

SETTLED_FIELDS: Final[Mapping[str, str]] = MappingProxyType({**_RECORD, **_SUMMARY, **_DERIVED, **_ENGINE, **_ERROR})
"""Every field of ``request.settled`` with its meaning."""


MAX_TEXT_CHARS: Final = 256


def _fields(kind: type[Struct], names: Iterable[str], *, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The fields of the event that come from ``kind``; one that has its default is not told, save for 0 and False."""
    unknown = {
        field.name: field.default if field.default in {None, "", ()} else UNSET
        for field in msgspec.structs.fields(kind)
    }
    return ((name, Any, unknown[name.removeprefix(prefix)]) for name in names)


def _values(names: Iterable[str], *, prefix: str = "") -> Callable[[Struct], tuple[object, ...]]:
    return attrgetter(*(name.removeprefix(prefix) for name in names))


_Event: Final = msgspec.defstruct(
    "SettledEvent",
    [
        *_fields(RequestRecord, _RECORD),
        *_fields(StreamSummary, _SUMMARY),
        *((name, Any, None) for name in _DERIVED),
        *_fields(EngineMetrics, _ENGINE, prefix="engine_"),
        *_fields(EngineError, _ERROR, prefix="engine_error_"),
    ],
    omit_defaults=True,
    frozen=True,
)
_of_record: Final = _values(_RECORD)
_of_summary: Final = _values(_SUMMARY)
_of_engine: Final = _values(_ENGINE, prefix="engine_")
_of_error: Final = _values(_ERROR, prefix="engine_error_")


def settled_event(record: RequestRecord) -> Struct:
    """``record`` as one flat struct, to be encoded; times to the microsecond, text cut, what is not known left out.

    A struct, and its values in one go: as a dict with a look at each of the seventy fields it would cost twice as much.
    """
    values = _of_record(record)
    if record.summary is not None:
        values += _summarised(record.summary)
    try:
        # :func:`_told` without its calls, and with a rounding that costs a third of round(value, 6).
        return _Event(
            *[
                round(value * 1e6) / 1e6
                if type(value) is float
                else value[:MAX_TEXT_CHARS]
                if type(value) is str
                else value
                for value in values
            ]
        )
    except (OverflowError, ValueError):  # a number without measure: an engine may tell of anything
        return _Event(*map(_told, values))


def _summarised(summary: StreamSummary) -> tuple[object, ...]:
    """What comes after the record's own values; fields at the end that nothing is known of are left to the event."""
    start, end = summary.window_start, summary.window_end
    window_s = None if start is None or end is None else end - start
    values = (*_of_summary(summary), window_s, decode_skew(summary))
    if summary.engine is None and summary.error is None:
        return values
    values += _of_engine(summary.engine or _NO_ENGINE)
    return values if summary.error is None else values + _of_error(summary.error)


_NO_ENGINE: Final = EngineMetrics()


def _told(value: object) -> object:
    match value:
        case float():
            return round(value, 6)
        case str():
            return value[:MAX_TEXT_CHARS]  # a client may ask for a model of any length
        case _:
            return value
