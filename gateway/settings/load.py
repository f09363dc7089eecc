"""File and environment -> Settings, or every fault in one go.

Not a station.  The order: read the text, lay the environment over it, validate each value, check the relations, look
at the machine.  All steps but the last run whatever the earlier ones found.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gateway.errors import ConfigError
from gateway.settings import document as yaml_document
from gateway.settings import faults
from gateway.settings.environment import Environment, Sections, overlay
from gateway.settings.faults import Fault
from gateway.settings.host import missing
from gateway.settings.install import Install
from gateway.settings.relations import broken
from gateway.settings.runtime import Runtime
from gateway.settings.section import homes, section_at
from gateway.settings.sentences import sentence


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that was configured.

    ``path`` is the file, absolute; relative paths in it are absolute already.  ``overrides`` are the names of the
    environment variables that had their say.
    """

    install: Install
    runtime: Runtime
    path: Path
    overrides: tuple[str, ...] = ()


def load(path: Path, *, environ: Mapping[str, str] | None = None, look_at_host: bool = True) -> Settings:
    """Settings from the file at ``path``, overridden by ``environ`` (None: this process's).

    ``look_at_host=False`` leaves out what only the serving process needs: variables with keys, certificate files.
    Raises ConfigError with one line for each fault.
    """
    return parse(_text(path), str(path), environ=environ, look_at_host=look_at_host)


def parse(text: str, name: str, *, environ: Mapping[str, str] | None = None, look_at_host: bool = True) -> Settings:
    """Like :func:`load`, for a ``text`` that faults call ``name``; ``Settings.path`` is ``name`` made absolute."""
    environ = os.environ if environ is None else environ
    document = yaml_document.read(text, name)
    if document.faults and not document.data:
        faults.refuse(document.faults)
    environment = Environment(environ)
    sections = _Reading(document, environment).sections(environ, look_at_host=look_at_host)
    return Settings(
        install=_part(Install, sections),
        runtime=_part(Runtime, sections),
        path=Path(name).absolute(),
        overrides=environment.overrides,
    )


class _Reading:
    """One document under one environment, on its way to sections."""

    def __init__(self, document: yaml_document.Document, environment: Environment) -> None:
        self._document = document
        self._environment = environment
        self._data = overlay(document.data, environment.data)

    def sections(self, environ: Mapping[str, str], *, look_at_host: bool) -> Sections:
        """The validated sections.  Raises ConfigError with everything that is wrong."""
        found = [*self._document.faults, *self._environment.strays(allowed=self._referred())]
        sections: Sections | None = None
        try:
            sections = Sections.model_validate(self._data)
        except ValidationError as error:
            found += self._faults_of(error.errors(include_url=False, include_input=False))
        found += [self._fault(item.path, item.message) for item in broken(self._data)]
        if sections is not None and look_at_host:
            found += [self._fault(item.path, item.message) for item in missing(sections, environ)]
        faults.refuse(found)
        if sections is None:
            raise ConfigError(f"{self._document.name}: not valid")
        return sections

    def _referred(self) -> frozenset[str]:
        """The variables that the file names as holders of backends' keys."""
        return frozenset(_values_of("api_key_env", self._data))

    def _faults_of(self, details: list[ErrorDetails]) -> Iterator[Fault]:
        for detail in details:
            path = detail["loc"]
            below = any(other["loc"][: len(path)] == path for other in details if other is not detail)
            if not (detail["type"] == "too_short" and below):  # entries are there, but bad
                yield self._fault_of(detail)

    def _fault_of(self, detail: ErrorDetails) -> Fault:
        path = detail["loc"]
        kind = detail["type"]
        if kind == "extra_forbidden":
            section, key = section_at(Sections, path[:-1]) or Sections, str(path[-1])
            message = faults.suggest(key, list(section.model_fields), homes=homes(Sections, key))
            return self._fault(path, message, at_key=True)
        return self._fault(path, sentence(detail))

    def _fault(self, path: faults.Path, message: str, *, at_key: bool = False) -> Fault:
        if variable := self._environment.variable(path):
            return Fault(f"environment {variable}", path, message)
        return self._document.fault(path, message, at_key=at_key)


def _values_of(key: str, data: Any) -> Iterator[str]:
    match data:
        case dict():
            for name, value in data.items():
                if name == key and isinstance(value, str):
                    yield value
                yield from _values_of(key, value)
        case list():
            for value in data:
                yield from _values_of(key, value)
        case _:
            return


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        column = error.start - error.object.rfind(b"\n", 0, error.start)
        raise ConfigError(str(Fault(str(path), (), "not UTF-8", line=line, column=column))) from error
    except OSError as error:
        raise ConfigError(f"{path}: {(error.strerror or 'cannot be read').lower()}") from error


def _part(kind: type[Any], sections: Sections) -> Any:
    """The keys of one part as that part; the values are those already validated."""
    return kind.model_validate({name: getattr(sections, name) for name in kind.model_fields})
