"""The values that travel: they survive the link, and say nothing that was not measured."""

from __future__ import annotations

import msgspec

from gateway.core.stream.summary import EngineError, EngineMetrics, Exactness, Flag, RequestShape, StreamSummary
from tests.fakes.engine_events import DONE, chat, event, role, summarise, usage


def test_a_summary_survives_the_link() -> None:
    summary = summarise(
        role(),
        chat(reasoning="hm"),
        chat(content="ok"),
        event({"error": {"code": 500, "type": "x"}}),
        chat(finish="stop"),
        usage(4, reasoning=1, metrics={"mean_itl_ms": 5.0}),
        DONE,
        shape=RequestShape(stream=True, logprobs=True),
    )
    assert summary.error is not None
    assert summary.engine is not None
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(summary), type=StreamSummary) == summary


def test_what_was_not_measured_takes_no_room() -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(StreamSummary())) == {}


def test_a_summary_holds_closed_words_and_numbers_only() -> None:
    """Every field is a number, a closed word, an engine's short code or a tuple of those: there is no room for text."""
    allowed = {
        str(kind)
        for kind in (
            int,
            int | None,
            float | None,
            bool,
            Exactness,
            tuple[str, ...],
            tuple[Flag, ...],
            EngineError | None,
            EngineMetrics | None,
        )
    }
    assert {str(field.type) for field in msgspec.structs.fields(StreamSummary)} <= allowed
