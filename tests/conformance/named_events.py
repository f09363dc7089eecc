"""Named events of the Responses and the Messages API taken apart, and the shape of a JSON value."""

from __future__ import annotations

import json
import re
from itertools import groupby
from typing import Any

from tests.fakes.recordings import Recording

FREE = {"input": {}}  # what the model puts there is its own
Event = tuple[str, dict[str, Any]]


def named_events(recording: Recording) -> list[Event]:
    """Every event as (name, data)."""
    found = re.findall(rb"^event: (\S+)\ndata: (\{.*)\n\n", recording.body, re.MULTILINE)
    return [(name.decode(), json.loads(data)) for name, data in found]


def order(events: list[Event]) -> list[str]:
    """The names in their order, repetitions once."""
    return [name for name, _ in groupby(name for name, _ in events)]


def data_of(events: list[Event], name: str) -> list[dict[str, Any]]:
    """The data of the events of that name."""
    return [data for kind, data in events if kind == name]


def shape(value: Any) -> Any:
    """What stands for a JSON value whose texts and numbers do not matter: keys in order, and kinds of values.

    A list has one shape for each ``type`` of its objects.
    """
    match value:
        case dict():
            return [(key, inner if key == "type" else shape(FREE.get(key, inner))) for key, inner in value.items()]
        case list():
            kinds = {inner.get("type") if isinstance(inner, dict) else type(inner).__name__: inner for inner in value}
            return [shape(inner) for inner in kinds.values()]
        case None | bool():
            return str(value)
        case str():
            return "text"
        case _:
            return type(value).__name__


def shapes(events: list[Event]) -> dict[str, Any]:
    """The shapes of the events, by the name and the type of the item, part, block or delta that they carry."""
    found: dict[str, Any] = {}
    for name, data in events:
        inner = next((data[key] for key in ("item", "part", "content_block", "delta") if key in data), None)
        kind = inner.get("type", "") if isinstance(inner, dict) else ""
        found.setdefault(f"{name} {kind}".strip(), shape(data))
    return found
