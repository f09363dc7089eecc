"""The base of every section of the settings: frozen, closed, and walkable by path.

Not a station.  ``children`` is the one place that looks into pydantic's field tables; the reference page, the
suggestions for unknown keys and the environment all stand on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.fields import FieldInfo

from gateway.settings.faults import Path


class Section(BaseModel):
    """A mapping in the file.  Unknown keys are refused; a section that is there but empty means its defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _empty_means_defaults(cls, given: Any) -> Any:
        return {} if given is None else given


@dataclass(frozen=True, slots=True)
class Child:
    """One key of a section; ``section`` is the model below it, and ``many`` says that it stands in a list."""

    name: str
    field: FieldInfo
    section: type[Section] | None
    many: bool


def children(section: type[Section]) -> Iterator[Child]:
    """The keys of ``section`` in the order of their declaration."""
    for name, field in section.model_fields.items():
        many = get_origin(field.annotation) is tuple
        inner = get_args(field.annotation)[0] if many else field.annotation
        below = inner if isinstance(inner, type) and issubclass(inner, Section) else None
        yield Child(name, field, below, many)


def section_at(root: type[Section], path: Path) -> type[Section] | None:
    """The section whose keys stand at ``path``, or None where a plain value stands."""
    here: type[Section] | None = root
    for part in path:
        if isinstance(part, int):
            continue
        here = next((child.section for child in children(here) if child.name == part), None) if here else None
    return here


def homes(root: type[Section], name: str) -> list[str]:
    """The full paths, as text, of every key called ``name``."""
    return [path for path, child in walk(root) if child.name == name]


def walk(section: type[Section], *, under: str = "") -> Iterator[tuple[str, Child]]:
    """Every key at or below ``section`` with its path as text (``pools[].name``), parents before their children."""
    for child in children(section):
        path = f"{under}.{child.name}" if under else child.name
        yield path, child
        if child.section is not None:
            yield from walk(child.section, under=path + ("[]" if child.many else ""))
