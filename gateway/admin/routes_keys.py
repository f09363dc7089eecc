"""The clients' keys: list them, make one, end one.

All take the scope admin.  A key is in the answer that makes it and nowhere else; digests are in none.  Every change
stands in the audit trail, by the key's id.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Annotated, Final

import msgspec
from aiohttp import hdrs, web
from msgspec import Meta, Struct

from gateway.admin.access import Caller
from gateway.admin.answers import json_answer
from gateway.admin.audit import AuditResult, AuditTrail
from gateway.admin.bodies import read_json
from gateway.admin.limits import AdminLimits
from gateway.admin.route import Route
from gateway.admin.schemas import ErrorBody
from gateway.admin.tokens import Scope
from gateway.core.admission.keys import ANY_MODEL, MAX_PRIORITY, Key, KeyDefaults, KeyLimits, KeyScope
from gateway.errors import GatewayError, NotFound
from gateway.ports import KeyReport, Keys

_CONFLICTS: Final[Mapping[int, type[Struct]]] = MappingProxyType({400: ErrorBody, 422: ErrorBody})


class KeyList(Struct, frozen=True, kw_only=True):
    """Every key, in the order of the file; ``next`` is always null, the list is whole."""

    items: tuple[KeyReport, ...]
    next: int | None = None


class KeyMade(Struct, frozen=True, kw_only=True):
    """A key that was just made; ``key`` is shown this once."""

    key: str
    made: KeyReport


class NewLimits(KeyLimits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of a key to be made; what is left out has none."""


class NewDefaults(KeyDefaults, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the requests of a key to be made get that say nothing themselves."""


class NewKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key to be made; everything may be left out.  ``expires_s``: how long it is good, null: until it is ended."""

    id: Annotated[str, Meta(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,63})?$")] = ""
    name: Annotated[str, Meta(max_length=128)] = ""
    scopes: tuple[KeyScope, ...] = tuple(KeyScope)
    models: tuple[str, ...] = (ANY_MODEL,)
    limits: NewLimits = NewLimits()
    priority_min: int = 0
    priority_max: int = MAX_PRIORITY
    weight: float = 1.0
    defaults: NewDefaults = NewDefaults()
    cache_salt: bool = False
    expires_s: Annotated[float, Meta(gt=0)] | None = None

    def wanted(self, now_wall: float) -> Key:
        """The key as it is asked for; its digest is to be made."""
        return Key(
            id=self.id,
            digest=b"",
            name=self.name,
            scopes=self.scopes,
            models=self.models,
            limits=KeyLimits(**msgspec.structs.asdict(self.limits)),
            priority_min=self.priority_min,
            priority_max=self.priority_max,
            weight=self.weight,
            defaults=KeyDefaults(**msgspec.structs.asdict(self.defaults)),
            cache_salt=self.cache_salt,
            expires_wall=None if self.expires_s is None else float(int(now_wall + self.expires_s)),
        )


class _Handlers:
    """What each route does.  Without keys (clients need none) every one answers 404."""

    def __init__(self, keys: Keys | None, audit: AuditTrail, limits: AdminLimits) -> None:
        self._keys = keys
        self._audit = audit
        self._limits = limits

    @property
    def known(self) -> Keys:
        if self._keys is None:
            raise NotFound("clients need no keys here: auth.clients is none")
        return self._keys

    async def listed(self, _request: web.Request, _caller: Caller) -> web.StreamResponse:
        return json_answer(KeyList(items=tuple(map(report, self.known.all()))))

    async def one(self, request: web.Request, _caller: Caller) -> web.StreamResponse:
        found = next((key for key in self.known.all() if key.id == request.match_info["id"]), None)
        if found is None:
            raise NotFound("there is no key of that id", param="id")
        return json_answer(report(found))

    async def create(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        wanted = (await read_json(request, self._limits, NewKey)).wanted(time.time())
        with self._noted(caller, "key.create"):
            made = await self.known.create(wanted)
        details = (f"key {made.made.id}: added",)
        self._audit.note(caller, "key.create", result=AuditResult.APPLIED, details=details)
        return json_answer(KeyMade(key=made.key, made=report(made.made)), status=201)

    async def revoke(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        with self._noted(caller, "key.revoke"):
            ended = await self.known.revoke(request.match_info["id"])
        self._audit.note(caller, "key.revoke", result=AuditResult.APPLIED, details=(f"key {ended.id}: revoked",))
        return json_answer(report(ended))

    @contextmanager
    def _noted(self, caller: Caller, action: str) -> Iterator[None]:
        """What comes to nothing stands in the audit trail, too."""
        try:
            yield
        except GatewayError as error:
            self._audit.note(caller, action, result=AuditResult.REFUSED, details=(error.message,))
            raise
        except BaseException as error:
            self._audit.note(caller, action, result=AuditResult.FAILED, details=(type(error).__name__,))
            raise


def key_routes(keys: Keys | None, audit: AuditTrail, limits: AdminLimits) -> tuple[Route, ...]:
    """All take the scope admin: whoever makes keys decides who comes in."""
    do = _Handlers(keys, audit, limits)
    return (
        Route(
            name="keys",
            method=hdrs.METH_GET,
            path="/admin/v1/keys",
            scope=Scope.ADMIN,
            handle=do.listed,
            summary="Every key of a client, ended ones among them; never a key itself.",
            answer=KeyList,
        ),
        Route(
            name="key",
            method=hdrs.METH_GET,
            path="/admin/v1/keys/{id}",
            scope=Scope.ADMIN,
            handle=do.one,
            summary="One key.",
            answer=KeyReport,
        ),
        Route(
            name="key_create",
            method=hdrs.METH_POST,
            path="/admin/v1/keys",
            scope=Scope.ADMIN,
            handle=do.create,
            summary="Make a key, which is shown this once (201).",
            answer=KeyMade,
            status=201,
            others=_CONFLICTS,
            takes=NewKey,
            body="What the key may do, as JSON; `{}` is a key for everything.",
        ),
        Route(
            name="key_revoke",
            method=hdrs.METH_DELETE,
            path="/admin/v1/keys/{id}",
            scope=Scope.ADMIN,
            handle=do.revoke,
            summary="End a key: new requests with it get 401 within seconds, open ones go on.",
            answer=KeyReport,
            others=_CONFLICTS,
        ),
    )


def report(key: Key) -> KeyReport:
    """``key`` for operators."""
    state = "revoked" if key.revoked_wall is not None else "good" if key.is_good(time.time()) else "expired"
    return KeyReport(
        id=key.id,
        name=key.name,
        state=state,
        scopes=key.scopes,
        models=key.models,
        limits=key.limits,
        priority_min=key.priority_min,
        priority_max=key.priority_max,
        weight=key.weight,
        defaults=key.defaults,
        cache_salt=key.cache_salt,
        created_wall=key.created_wall or None,
        expires_wall=key.expires_wall,
        revoked_wall=key.revoked_wall,
    )
