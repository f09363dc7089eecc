"""The catalogue of events: complete, and what control tells is in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from gateway.store import events as store_events
from gateway.telemetry.events import EVENTS, EventName, Level
from tests.meta.source_tree import PACKAGE, python_sources

ENVELOPE = {"ts", "timestamp", "level", "event"}


def mentions() -> Iterator[tuple[str, str, set[str] | None]]:
    """(place, event, fields) of every call that names an event; fields None where they are not written out."""
    for source in python_sources(PACKAGE):
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call) and node.args and (name := event_of(node.args[0])):
                yield f"{source.name}:{node.lineno}", name, fields_of(node)


def event_of(node: ast.expr) -> str:
    match node:
        case ast.Attribute(value=ast.Name(id="EventName"), attr=attr):
            return EventName[attr]
        case _:
            return ""


def fields_of(call: ast.Call) -> set[str] | None:
    if any(keyword.arg is None for keyword in call.keywords):
        return None
    fields = {str(keyword.arg) for keyword in call.keywords}
    match call.args[1:]:
        case [ast.Dict(keys=keys)]:
            return fields | {str(key.value) for key in keys if isinstance(key, ast.Constant)}
        case [_, *_]:
            return None
        case _:
            return fields


def test_every_event_is_in_the_catalogue() -> None:
    assert set(EVENTS) == set(EventName)


@pytest.mark.parametrize("name", EventName)
def test_an_event_is_named_subject_dot_happening_and_says_when_it_is_told(name: EventName) -> None:
    assert re.fullmatch(r"[a-z]+\.[a-z_]+", name.value)
    spec = EVENTS[name]
    assert spec.when.endswith(".")
    assert not set(spec.fields) & ENVELOPE
    assert all(spec.fields.values())


@pytest.mark.parametrize("name", EventName)
def test_what_makes_an_event_graver_is_one_of_its_fields_and_makes_it_graver(name: EventName) -> None:
    spec = EVENTS[name]
    order = list(Level)
    for (field, value), level in spec.graver.items():
        assert field in spec.fields
        assert order.index(level) > order.index(spec.level)
        assert spec.level_of({field: value}) is level
    assert spec.level_of({}) is spec.level


def test_what_the_code_tells_has_exactly_the_fields_of_the_catalogue() -> None:
    found = [(place, name, fields) for place, name, fields in mentions() if fields is not None]
    assert len(found) >= 10
    wrong = [
        (place, name, fields ^ set(EVENTS[EventName(name)].fields))
        for place, name, fields in found
        if fields != set(EVENTS[EventName(name)].fields)
    ]
    assert wrong == []


def test_every_event_of_the_history_is_in_the_catalogue_with_its_fields() -> None:
    kinds = store_events.StoreEvent.__args__
    assert len(kinds) >= 7
    for kind in kinds:
        tag = kind.__struct_config__.tag
        assert set(EVENTS[EventName(tag)].fields) == set(kind.__struct_fields__)
