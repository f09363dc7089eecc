"""Settings from the environment: ``PACEKEEPER_TIMERS__STALL_S=60`` wins over the file.

Not a station.  pydantic-settings decodes; this module adds lists without JSON, refuses variables that would silently
do nothing, and remembers which variable set what, for the faults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from gateway.settings.faults import Fault, Path, nearest
from gateway.settings.install import Install
from gateway.settings.runtime import Runtime
from gateway.settings.section import walk

PREFIX: Final = "PACEKEEPER_"
NESTED: Final = "__"
OF_COMMANDS: Final = frozenset({"CONFIG", "OPERATORS_URL", "TOKEN", "TOKEN_FILE"})
"""Variables (without the prefix) that are options of the command line and no settings."""

_OF_KUBERNETES: Final = re.compile(r"(.*_)?SERVICE_(HOST|PORT(_.*)?)|(.*_)?PORT(_[0-9]+_(TCP|UDP|SCTP)(_.*)?)?")
"""What Kubernetes puts into every pod beside a Service whose name begins with pacekeeper."""


class Sections(Install, Runtime):
    """The whole file: the keys of the install part and of the runtime part side by side."""


class _FromEnvironment(BaseSettings, Sections):
    """Sections as pydantic-settings wants them, to decode by; no instance is ever made."""

    model_config = SettingsConfigDict(  # type: ignore[mutable-override]  # pydantic-settings' own widening
        env_prefix=PREFIX, env_nested_delimiter=NESTED, env_ignore_empty=True
    )


class _Source(EnvSettingsSource):
    """pydantic-settings' source over a given environment, with ``a,b`` for lists beside JSON."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(_FromEnvironment)
        self.env_vars = {name.lower(): value for name, value in environ.items()}

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """JSON, or a list with commas; what is neither goes on as text, which validation then refuses by its place."""
        text = str(value).strip()
        if not text.startswith(("[", "{")):
            return [part.strip() for part in text.split(",")] if text else text
        try:
            return super().decode_complex_value(field_name, field, text)
        except ValueError:
            return text


class Environment:
    """The overrides in one environment.  ``data`` is nested like the file; read-only once made."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._names: dict[Path, str] = {
            tuple(name[len(PREFIX) :].lower().split(NESTED)): name
            for name, value in environ.items()
            if name.startswith(PREFIX) and value and name[len(PREFIX) :] not in OF_COMMANDS
        }
        self.data: dict[str, Any] = _Source({name: environ[name] for name in self._names.values()})()
        self._setting = {path: name for path, name in self._names.items() if self._sets(path)}

    @property
    def overrides(self) -> tuple[str, ...]:
        """The names of the variables that set something."""
        return tuple(sorted(self._setting.values()))

    def variable(self, path: Path) -> str | None:
        """The variable that set the value at ``path``, or something above or below it."""
        for length in range(len(path), 0, -1):
            if name := self._setting.get(path[:length]):
                return name
        return next((name for known, name in self._setting.items() if known[: len(path)] == path), None)

    def strays(self, *, allowed: frozenset[str]) -> Iterator[Fault]:
        """A fault for each variable that sets nothing; ``allowed`` are names that the file itself refers to."""
        for path, name in self._names.items():
            if name in allowed or _OF_KUBERNETES.fullmatch(name[len(PREFIX) :]) or path in self._setting:
                continue
            near = nearest(name, list(variables()))
            hint = f"; did you mean {near}?" if near else ""
            yield Fault(f"environment {name}", (), f"this variable sets nothing{hint}")

    def _sets(self, path: Path) -> bool:
        here: Any = self.data
        for part in path:
            if not isinstance(here, dict) or part not in here:
                return False
            here = here[part]
        return True


def variables() -> Iterator[str]:
    """Every variable that sets something, sections (as JSON) and lists included, and those of the commands."""
    for path, _ in walk(Sections):
        if "[]" not in path:
            yield PREFIX + path.replace(".", NESTED).upper()
    yield from sorted(PREFIX + option for option in OF_COMMANDS)


def overlay(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """``above`` over ``below``: mappings are merged, everything else is replaced."""
    merged = dict(below)
    for key, value in above.items():
        lower = merged.get(key)
        merged[key] = overlay(lower or {}, value) if isinstance(value, dict) and _is_mapping(lower) else value
    return merged


def _is_mapping(value: Any) -> bool:
    return value is None or isinstance(value, dict)
