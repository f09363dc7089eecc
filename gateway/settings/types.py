"""The types of single settings: bounded numbers with units, names, paths, addresses.

Not a station.  Each takes what YAML or an environment variable gives, checks it and says in one sentence what is
wrong.  Nothing is opened or resolved here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from gateway.settings.addresses import parse_host_name, parse_listen, parse_url

_UNITS: Final = {"": 1, "b": 1, "kib": 1024, "mib": 1024**2, "gib": 1024**3, "tib": 1024**4}
_SIZE: Final = re.compile(r"([0-9]+)\s*([A-Za-z]*)")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ORIGIN: Final = re.compile(r"https?://[a-z0-9.\-\[\]:]{1,255}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_MODEL_CHARS: Final = 256
_MAX_PATH_CHARS: Final = 4096


@dataclass(frozen=True, slots=True)
class Kind:
    """What a value is, in the words of the reference page; stands in the metadata of a type."""

    words: str


def _number(given: Any) -> Any:
    match given:
        case bool():
            raise ValueError("must be a number, not true or false")
        case _:
            return given


def _size(given: Any) -> Any:
    match given:
        case bool():
            raise ValueError("must be a size in bytes, not true or false")
        case str() if (found := _SIZE.fullmatch(given.strip())) and found[2].lower() in _UNITS:
            return int(found[1]) * _UNITS[found[2].lower()]
        case str():
            raise ValueError('must be a size: a number of bytes, or "64 MiB" (KiB, MiB, GiB, TiB)')
        case _:
            return given


def _text(given: Any) -> Any:
    match given:
        case bool() | int() | float():
            raise ValueError("must be text; put it in quotes")
        case _:
            return given


def _name(given: str) -> str:
    if not _NAME.fullmatch(given):
        raise ValueError("must be 1 to 64 letters, digits, dots, dashes or underscores, the first a letter or digit")
    return given


def _model_name(given: str) -> str:
    if not given or len(given) > _MAX_MODEL_CHARS or not given.isprintable() or "|" in given or given != given.strip():
        raise ValueError(f'must be 1 to {_MAX_MODEL_CHARS} printable characters without "|" and outer blanks')
    return given


def _adapter_path(given: str) -> str:
    if not 0 < len(given) <= _MAX_PATH_CHARS or not given.isprintable() or given != given.strip():
        raise ValueError(f"must be 1 to {_MAX_PATH_CHARS} printable characters without outer blanks")
    if given.startswith("~"):
        raise ValueError('"~" would be the home of whoever runs the engine; write the path in full')
    return given


def _origin(given: str) -> str:
    if given != "*" and not _ORIGIN.fullmatch(given):
        raise ValueError('must be "*" or an origin: "https://host" or "https://host:port", in small letters, no path')
    return given


def _variable(given: str) -> str:
    if given and not _VARIABLE.fullmatch(given):
        raise ValueError("must be the name of an environment variable (letters, digits, _), not the key itself")
    return given


def _absolute(given: Any) -> Any:
    match given:
        case str() if not given or not given.isprintable():
            raise ValueError("must be a path")
        case str() if given.startswith("~"):
            raise ValueError('"~" is not expanded here; write the path in full')
        case str() | Path():
            return Path(given).absolute()
        case _:
            raise ValueError("must be a path")


def _file(given: Any) -> Any:
    return "" if given == "" else str(_absolute(given))


def _workers(given: Any) -> Any:
    match given:
        case "auto":
            return given
        case str() if given.isascii() and given.isdigit():
            count = int(given[:9])
        case int() if not isinstance(given, bool):
            count = given
        case _:
            raise ValueError('must be a whole number or "auto"')
    if not 1 <= count <= 256:
        raise ValueError('must be 1 to 256, or "auto"')
    return count


Seconds = Annotated[float, BeforeValidator(_number), Field(gt=0, le=604_800, allow_inf_nan=False), Kind("seconds")]
"""A wait, in seconds: more than 0, at most a week."""

SecondsOrOff = Annotated[
    float, BeforeValidator(_number), Field(ge=0, le=604_800, allow_inf_nan=False), Kind("seconds, 0 is off")
]
"""A wait, in seconds; 0 switches it off."""

Days = Annotated[float, BeforeValidator(_number), Field(gt=0, le=36_500, allow_inf_nan=False), Kind("days")]
"""An age, in days."""

Count = Annotated[int, BeforeValidator(_number), Field(ge=1, le=1_000_000), Kind("number")]
"""How many: at least 1."""

CountOrNone = Annotated[int, BeforeValidator(_number), Field(ge=0, le=1_000_000), Kind("number, may be 0")]
"""How many, or 0."""

Share = Annotated[float, BeforeValidator(_number), Field(ge=0, le=1, allow_inf_nan=False), Kind("share, 0 to 1")]
"""A part of a whole."""

Bytes = Annotated[int, BeforeValidator(_size), Field(ge=1024, le=1024**5), Kind("size")]
"""A size in bytes, given as a number or as ``64 MiB``."""

Switch = Annotated[bool, Kind("true or false")]
Name = Annotated[str, BeforeValidator(_text), AfterValidator(_name), Kind("name")]
ModelName = Annotated[str, BeforeValidator(_text), AfterValidator(_model_name), Kind("model name")]
AdapterPath = Annotated[str, BeforeValidator(_text), AfterValidator(_adapter_path), Kind("path on the backends' host")]
VariableName = Annotated[str, BeforeValidator(_text), AfterValidator(_variable), Kind("variable name")]
FilePath = Annotated[Path, BeforeValidator(_absolute), Kind("path")]
"""A path; relative ones count from the current directory and are absolute once read."""

OptionalFile = Annotated[str, BeforeValidator(_file), Kind("path")]
"""A path as text, absolute once read, or "" for none."""

Listen = Annotated[str, BeforeValidator(_text), AfterValidator(lambda given: str(parse_listen(given))), Kind("address")]
"""Where to listen, in its one normal form."""

Origin = Annotated[str, BeforeValidator(_text), AfterValidator(_origin), Kind("origin")]
"""Where a web page comes from, as browsers spell it."""

HostName = Annotated[str, BeforeValidator(_text), AfterValidator(parse_host_name), Kind("host name")]
BackendUrl = Annotated[str, BeforeValidator(_text), AfterValidator(parse_url), Kind("url")]
Workers = Annotated[int | Literal["auto"], BeforeValidator(_workers), Kind("number or `auto`")]
