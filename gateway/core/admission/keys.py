"""Keys of clients: who sent a request, and what that key may do.

Station admit.  Holds digests only; a key itself is looked at here and forgotten.  Unknown, revoked and expired keys are
refused in the same words and by the same steps, so that an answer tells nothing.  Pure: the time of day is an argument.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

from msgspec import Struct

from gateway.core.stream.delivery.mode import Delivery
from gateway.refusals import InvalidKey, KeyForbidden

PREFIX: Final = "pk-"
"""What every key that the gateway makes begins with, so that scanners of source code find one that was left there."""

MAX_KEY_CHARS: Final = 512
MIN_PRIORITY: Final = -100
MAX_PRIORITY: Final = 100
ANY_MODEL: Final = "*"

_REFUSAL: Final = "this takes a key that is good here: `Authorization: Bearer KEY`, or `x-api-key: KEY`"
_NOBODY: Final = hashlib.sha256(b"").digest()


class KeyScope(StrEnum):
    """What a key is for."""

    INFERENCE = "inference"  # every endpoint of an engine, and the list of models
    USAGE = "usage"  # the key's own counts


class KeyLimits(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Bounds of one key over all workers; None: no bound.  Tokens are those of prompt and answer together.

    ``queue_share``: the part of a pool's queue that its requests may fill, 0 to 1.
    """

    concurrency: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    tokens_per_day: int | None = None
    queue_share: float = 1.0


class KeyDefaults(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a request of the key gets that says nothing itself; None and "": what everybody gets."""

    priority: int = 0
    reasoning: Delivery | None = None
    metrics: str = ""
    comments: bool | None = None


class Key(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One key.  ``digest`` is its SHA-256; ``models`` are names or globs; ``weight`` is its part under contention.

    ``priority_min`` to ``priority_max`` is what its requests may ask for; the lower goes first, as in vLLM.
    """

    id: str
    digest: bytes
    name: str = ""
    scopes: tuple[KeyScope, ...] = tuple(KeyScope)
    models: tuple[str, ...] = (ANY_MODEL,)
    limits: KeyLimits = KeyLimits()
    priority_min: int = 0
    priority_max: int = MAX_PRIORITY
    weight: float = 1.0
    defaults: KeyDefaults = KeyDefaults()
    cache_salt: bool = False
    created_wall: float = 0.0
    expires_wall: float | None = None
    revoked_wall: float | None = None

    def is_good(self, now_wall: float) -> bool:
        """Whether it is neither revoked nor expired."""
        return self.revoked_wall is None and (self.expires_wall is None or now_wall < self.expires_wall)

    def may_use(self, model: str) -> bool:
        """Whether it is for ``model``; a request that names none is for a key of all models only."""
        return any(pattern == ANY_MODEL or (model and fnmatchcase(model, pattern)) for pattern in self.models)


class KeyTable:
    """Every key by its digest; immutable once made."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self.by_id = {key.id: key for key in keys}
        self._by_digest = {key.digest: key for key in self.by_id.values()}

    def find(self, presented: str, *, now_wall: float) -> Key:
        """The good key that was presented.  Raises InvalidKey in the same words for every other.

        What is looked up is a digest, so how long that takes tells nothing of any key.
        """
        digest = digest_of(presented)
        key = self._by_digest.get(digest)
        known = hmac.compare_digest(digest, key.digest if key is not None else _NOBODY)
        if key is None or not known or not key.is_good(now_wall):
            raise InvalidKey(_REFUSAL)
        return key


def digest_of(key: str) -> bytes:
    """SHA-256: keys are random and long, so there is nothing that a slow hash would protect."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def presented_key(authorization: list[str], api_key: list[str]) -> str:
    """The key in a request's ``Authorization`` and ``x-api-key`` headers, each given once; "" when there is none."""
    if authorization:
        scheme, _, value = authorization[0].partition(" ")
        found = value.strip() if len(authorization) == 1 and scheme.lower() == "bearer" else ""
    else:
        found = api_key[0].strip() if len(api_key) == 1 else ""
    return found if len(found) <= MAX_KEY_CHARS else ""


def no_key() -> InvalidKey:
    """What a request without a key is told: the same as with a wrong one."""
    return InvalidKey(_REFUSAL)


def check_scope(key: Key, scope: KeyScope) -> None:
    """Raise KeyForbidden when the key is not for that."""
    if scope not in key.scopes:
        raise KeyForbidden(f"this key has not the scope {scope}")


def check_model(key: Key, names: Iterable[str]) -> None:
    """Raise KeyForbidden when the key is not for a model of any of these ``names``, whether there is one or not."""
    names = tuple(names)
    if any(map(key.may_use, names)):
        return
    if names and names[0]:
        raise KeyForbidden(f"this key is not for the model `{names[0][:128]}`", param="model")
    raise KeyForbidden("this key is for certain models only: name one of them in `model`", param="model")


def salt_of(key: Key, *, given: str) -> str:
    """What keeps a key's prompts apart in an engine's prefix cache: the same for the same key, and no way back to it.

    ``given``: the client's own salt, which goes on to divide its own prompts.
    """
    return hmac.new(key.digest, b"cache_salt:" + given.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
