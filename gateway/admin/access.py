"""Who may do what: the one gate that every handler is behind.

A route declares its scope; the gate is wrapped around its handler, so what is authorised is what runs, never a path
that somebody rebuilt.  Says no in the same words for a missing and a wrong token.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aiohttp import hdrs, web
from msgspec import Struct

from gateway.admin.origins import Origins
from gateway.admin.tokens import Scope, TokenTable
from gateway.core.admission.throttle import Throttle
from gateway.errors import NotAllowed, NotAuthenticated, TooManyAttempts

_STRANGER: Final = (
    "this takes a token: `Authorization: Bearer TOKEN`; the admin token is in admin.token in the runtime directory"
)


class Caller(Struct, frozen=True, kw_only=True):
    """Who sent a request: the token's name ("" on an open route), its scope, and the address."""

    name: str
    scope: Scope
    peer: str


class Gate:
    """Decides on each request; owns the count of wrong tokens."""

    def __init__(self, tokens: TokenTable, origins: Origins, *, throttle: Throttle, clock: Callable[[], float]) -> None:
        self._tokens = tokens
        self._origins = origins
        self._throttle = throttle
        self._clock = clock

    def admit(self, request: web.Request, scope: Scope) -> Caller:
        """The caller, when the request may have ``scope``.

        Raises NotAllowed (foreign Host or Origin, scope too small), NotAuthenticated, TooManyAttempts.
        """
        refusal = self._origins.refusal(_single(request, hdrs.HOST), _single(request, hdrs.ORIGIN))
        if refusal:
            raise NotAllowed(refusal)
        peer = request.remote or "unix"
        if scope is Scope.OPEN:
            return Caller(name="", scope=scope, peer=peer)
        presented = _bearer(_single(request, hdrs.AUTHORIZATION))
        now = self._clock()
        wait_s = self._throttle.wait_s(peer, now)
        if wait_s > 0:
            raise TooManyAttempts("too many wrong tokens from this address", retry_after_s=wait_s)
        token = self._tokens.find(presented) if presented else None
        if token is None:
            if presented:
                self._throttle.failed(peer, now)
            raise NotAuthenticated(_STRANGER)
        if token.scope < scope:
            raise NotAllowed(f"this takes a token with the scope {scope.word}, {token.name} has {token.scope.word}")
        return Caller(name=token.name, scope=token.scope, peer=peer)


def _single(request: web.Request, name: str) -> str | None:
    """The header's value; two of them are as good as a wrong one."""
    values = request.headers.getall(name, [])
    return values[0] if len(values) == 1 else ("" if values else None)


def _bearer(header: str | None) -> str:
    scheme, _, token = (header or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
