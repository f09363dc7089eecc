"""Holds values against JSON Schemas: as much of the language as our descriptions use, and no more.

A keyword that is not known here is a complaint itself, so that nothing goes unchecked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

_SILENT = {"title", "description", "default", "items", "properties", "additionalProperties", "required"}
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "object": (dict,),
    "array": (list,),
}


def complaints(value: Any, schema: Schema, document: Schema, *, at: str = "$") -> list[str]:
    """What about ``value`` does not fit ``schema``; references lead into ``document``."""
    found = [complaint for keyword in schema for complaint in _by_keyword(value, keyword, schema, document, at)]
    if not found and isinstance(value, dict):
        found += _in_object(value, schema, document, at)
    if not found and isinstance(value, list):
        for index, item in enumerate(value):
            found += complaints(item, schema.get("items", {}), document, at=f"{at}[{index}]")
    return found


def _by_keyword(value: Any, keyword: str, schema: Schema, document: Schema, at: str) -> Iterator[str]:
    rule = schema[keyword]
    match keyword:
        case "$ref":
            target: Any = document
            for part in rule.removeprefix("#/").split("/"):
                target = target[part]
            yield from complaints(value, target, document, at=at)
        case "type":
            if not isinstance(value, _TYPES[rule]) or (isinstance(value, bool) and rule != "boolean"):
                yield f"{at}: {value!r} is no {rule}"
        case "enum":
            if value not in rule:
                yield f"{at}: {value!r} is none of {rule}"
        case "anyOf":
            if all(complaints(value, option, document, at=at) for option in rule):
                yield f"{at}: {value!r} fits none of its shapes"
        case _:
            if keyword not in _SILENT:
                yield f"{at}: the keyword {keyword} is not known to this check"


def _in_object(value: Schema, schema: Schema, document: Schema, at: str) -> Iterator[str]:
    yield from (f"{at}.{name}: missing" for name in schema.get("required", []) if name not in value)
    described = schema.get("properties", {})
    others = schema.get("additionalProperties")
    for name, item in value.items():
        rule = described.get(name, others)
        if rule is not None:
            yield from complaints(item, rule, document, at=f"{at}.{name}")
        elif described:
            yield f"{at}.{name}: not described"
