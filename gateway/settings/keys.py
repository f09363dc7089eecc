"""The clients' keys as they stand in their file: digests, never keys.

Not a station.  ``read_keys`` is the way in and reports every fault with its place, ``write_keys`` the way out.  YAML or
JSON is read; JSON is written, which is YAML too.  A file that others may read or write is refused, since whoever can
write it can let himself in.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from gateway.core.admission.keys import (
    ANY_MODEL,
    MAX_PRIORITY,
    MIN_PRIORITY,
    Key,
    KeyDefaults,
    KeyLimits,
    KeyScope,
)
from gateway.core.stream.delivery.mode import Delivery
from gateway.errors import ConfigError
from gateway.settings import document as yaml_document
from gateway.settings import faults
from gateway.settings.faults import Fault
from gateway.settings.section import Section, section_at
from gateway.settings.sentences import sentence
from gateway.settings.types import ModelName, Name

MAX_KEYS: Final = 10_000
_OTHERS: Final = 0o077
_DIGEST: Final = re.compile(r"(sha256:)?[0-9a-f]{64}")


def _digest(given: Any) -> Any:
    if not isinstance(given, str) or not _DIGEST.fullmatch(given):
        raise ValueError("must be the SHA-256 of the key in 64 hexadecimal digits, never the key itself")
    return given.removeprefix("sha256:")


def _moment(given: Any) -> Any:
    if given is None:
        return None
    try:
        moment = datetime.fromisoformat(given) if isinstance(given, str) else None
    except ValueError:
        moment = None
    if moment is None:
        raise ValueError('must be a time such as "2027-01-31T12:00:00Z"')
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def _no_pattern_of_nothing(given: tuple[str, ...]) -> tuple[str, ...]:
    if not given:
        raise ValueError('needs at least one name or pattern; "*" is every model')
    return given


Digest = Annotated[str, BeforeValidator(_digest)]
Moment = Annotated[float | None, BeforeValidator(_moment)]
Bound = Annotated[int, Field(ge=1, le=10**15)]
Priority = Annotated[int, Field(ge=MIN_PRIORITY, le=MAX_PRIORITY)]
Models = Annotated[tuple[ModelName, ...], AfterValidator(_no_pattern_of_nothing)]


class LimitsEntry(Section):
    """Bounds of one key, over all workers; what is left out has none."""

    concurrency: Bound | None = Field(None, description="Requests at once, waiting ones among them.")
    requests_per_minute: Bound | None = Field(None, description="Requests within any sixty seconds.")
    tokens_per_minute: Bound | None = Field(
        None, description="Tokens of prompts and answers within any sixty seconds, charged when an answer has ended."
    )
    tokens_per_day: Bound | None = Field(None, description="The same since midnight, UTC.")
    queue_share: float = Field(1.0, gt=0, le=1, description="The part of a pool's queue that its requests may fill.")


class PriorityEntry(Section):
    """What its requests may ask for in ``X-Gateway-Priority``; the lower goes first, as in vLLM."""

    lowest: Priority = Field(0, description="The most urgent.")
    highest: Priority = Field(MAX_PRIORITY, description="The least urgent.")


class DefaultsEntry(Section):
    """What a request gets that says nothing itself."""

    priority: Priority = Field(0, description="Its priority.")
    reasoning: Delivery | None = Field(None, description="As X-Gateway-Reasoning.")
    metrics: Literal["", "none", "usage", "event"] = Field("", description="As X-Gateway-Metrics.")
    comments: bool | None = Field(None, description="As comments.untouched in the settings.")


class KeyEntry(Section):
    """One key."""

    id: Name = Field(description="What it is called in logs, records and metrics.")
    digest: Digest = Field(description="SHA-256 of the key, in hexadecimal.")
    name: str = Field("", max_length=128, description="For people: whose it is.")
    scopes: tuple[KeyScope, ...] = Field(tuple(KeyScope), description="What it is for: inference, usage.")
    models: Models = Field((ANY_MODEL,), description="Names of models, or patterns with * and ?.")
    limits: LimitsEntry = Field(default_factory=LimitsEntry, description=LimitsEntry.__doc__)
    priority: PriorityEntry = Field(default_factory=PriorityEntry, description=PriorityEntry.__doc__)
    weight: float = Field(1.0, ge=0.01, le=1000, description="Its part when keys compete for places.")
    defaults: DefaultsEntry = Field(default_factory=DefaultsEntry, description=DefaultsEntry.__doc__)
    cache_salt: bool = Field(
        default=False, description="Whether its prompts share the engines' prefix cache with its own only."
    )
    created: Moment = Field(None, description="When it was made.")
    expires: Moment = Field(None, description="When it ends by itself.")
    revoked: Moment = Field(None, description="When it was ended.")

    @model_validator(mode="after")
    def _priorities_fit(self) -> KeyEntry:
        if not self.priority.lowest <= self.defaults.priority <= self.priority.highest:
            raise ValueError("defaults.priority must lie from priority.lowest to priority.highest")
        return self

    def key(self) -> Key:
        """The key as the gateway knows it."""
        return Key(
            id=self.id,
            digest=bytes.fromhex(self.digest),
            name=self.name,
            scopes=self.scopes,
            models=self.models,
            limits=KeyLimits(**self.limits.model_dump()),
            priority_min=self.priority.lowest,
            priority_max=self.priority.highest,
            weight=self.weight,
            defaults=KeyDefaults(**self.defaults.model_dump()),
            cache_salt=self.cache_salt,
            created_wall=self.created or 0.0,
            expires_wall=self.expires,
            revoked_wall=self.revoked,
        )


class KeysFile(Section):
    """The whole file."""

    keys: tuple[KeyEntry, ...] = Field((), max_length=MAX_KEYS, description="Every key.")


def read_keys(path: Path) -> tuple[Key, ...]:
    """The keys in the file at ``path``.  Raises ConfigError with a line for each fault."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            _check_private(path, os.fstat(file.fileno()))
            text = file.read(yaml_document.MAX_TEXT_BYTES * 16 + 1).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8") from error
    except OSError as error:
        raise ConfigError(f"{path}: {(error.strerror or 'cannot be read').lower()}") from error
    if not text.strip("\0 \t\r\n"):  # cut short, by a full disk say: it must not take every key away
        raise ConfigError(f"{path}: is empty; a file that holds no key says `keys: []`")
    return parse_keys(text, str(path))


def _without_waiting(path: str, flags: int) -> int:
    """Open what may be a pipe that nobody writes to: only then can it be seen and refused."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def parse_keys(text: str, name: str) -> tuple[Key, ...]:
    """The keys in ``text``, which faults call ``name``.  Raises ConfigError."""
    if (keys := _quickly(text)) is not None:
        return keys
    document = yaml_document.read(text, name, max_bytes=yaml_document.MAX_TEXT_BYTES * 16, max_nodes=MAX_KEYS * 64)
    found: list[Fault] = list(document.faults)
    file: KeysFile | None = None
    try:
        file = KeysFile.model_validate(document.data)
    except ValidationError as error:
        for detail in error.errors(include_url=False, include_input=False):
            path = detail["loc"]
            if detail["type"] == "extra_forbidden":
                section = section_at(KeysFile, path[:-1]) or KeysFile
                message = faults.suggest(str(path[-1]), list(section.model_fields))
                found.append(document.fault(path, message, at_key=True))
            else:
                found.append(document.fault(path, sentence(detail)))
    if file is not None:
        found += _doubled(document, file)
    faults.refuse(found)
    return tuple(entry.key() for entry in file.keys) if file is not None else ()


def _quickly(text: str) -> tuple[Key, ...] | None:
    """The keys of a faultless JSON text, as the gateway writes it: a YAML reader takes seconds for thousands."""
    try:
        file = KeysFile.model_validate(msgspec.json.decode(text))
    except (ValueError, RecursionError):
        return None
    entries = file.keys
    distinct = len({it.id for it in entries}) == len({it.digest for it in entries}) == len(entries)
    return tuple(entry.key() for entry in entries) if distinct else None


def _doubled(document: yaml_document.Document, file: KeysFile) -> Iterable[Fault]:
    for field in ("id", "digest"):
        seen: dict[str, int] = {}
        for at, entry in enumerate(file.keys):
            value = getattr(entry, field)
            if value in seen:
                yield document.fault(("keys", at, field), f"the same {field} as keys[{seen[value]}]")
            seen.setdefault(value, at)


def _check_private(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"{path}: not a regular file")
    if status.st_uid not in {os.geteuid(), 0}:
        raise ConfigError(f"{path}: belongs to another user (uid {status.st_uid})")
    if status.st_mode & _OTHERS:
        mode = stat.S_IMODE(status.st_mode)
        raise ConfigError(f"{path}: open to others (mode {mode:04o}); chmod 0600 it")


def write_keys(keys: Iterable[Key]) -> bytes:
    """The text of a file with ``keys``."""
    return msgspec.json.format(msgspec.json.encode({"keys": [entry_of(key) for key in keys]})) + b"\n"


def entry_of(key: Key) -> dict[str, Any]:
    """One key as it stands in the file; what has no value is left out."""
    limits, defaults = (
        {name: value for name, value in msgspec.structs.asdict(part).items() if value is not None}
        for part in (key.limits, key.defaults)
    )
    entry: dict[str, Any] = {
        "id": key.id,
        "digest": f"sha256:{key.digest.hex()}",
        "name": key.name,
        "scopes": [scope.value for scope in key.scopes],
        "models": list(key.models),
        "limits": limits,
        "priority": {"lowest": key.priority_min, "highest": key.priority_max},
        "weight": key.weight,
        "defaults": defaults,
        "cache_salt": key.cache_salt,
    }
    for name, wall in (("created", key.created_wall), ("expires", key.expires_wall), ("revoked", key.revoked_wall)):
        if wall:
            entry[name] = moment_of(wall)
    return entry


def moment_of(wall: float) -> str:
    """A time of day as it is written: to the second, UTC."""
    return datetime.fromtimestamp(int(wall), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
