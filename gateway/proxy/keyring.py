"""Station admit, first of all: whose request is it, by the key in its head.

Owner of the keys that this worker was told, and of the count of wrong ones by address.  A good key is let in whatever
its address has tried: behind an address there may be a proxy with a thousand clients, and no number of attempts finds a
key.  What is presented is hashed and forgotten: it stands in no error, no record and no message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv6Address, ip_address, ip_network
from types import MappingProxyType
from typing import Final

from aiohttp import hdrs, web

from gateway.core.admission.keys import Key, KeyScope, KeyTable, check_scope, no_key, presented_key
from gateway.core.admission.throttle import Throttle
from gateway.core.routing.endpoints import Endpoint, Serves
from gateway.errors import TooManyAttempts
from gateway.refusals import ControlAway, InvalidKey

_BURST: Final = 20
_EVERY_S: Final = 1.0
_PEERS: Final = 4096
_V6_SITE: Final = 64

_SCOPES: Final[Mapping[Serves, KeyScope]] = MappingProxyType(
    {
        Serves.ENGINE: KeyScope.INFERENCE,
        Serves.MODELS: KeyScope.INFERENCE,
        Serves.REASONING: KeyScope.INFERENCE,
        Serves.USAGE: KeyScope.USAGE,
    }
)
"""What a key must be for; endpoints that are not here take none."""


class Keyring:
    """See the module; one a worker, only where clients need keys."""

    def __init__(self, *, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self.table: KeyTable | None = None
        self._clock = clock
        self._wall = wall
        self._throttle = Throttle(_BURST, _EVERY_S, peers=_PEERS)

    def replace(self, keys: Iterable[Key]) -> None:
        """Know these keys and no others."""
        self.table = KeyTable(keys)

    def is_good(self, key: Key) -> bool:
        """Whether a key that was let in before is still good."""
        known = self.table.by_id.get(key.id) if self.table is not None else None
        return known is not None and known.digest == key.digest and known.is_good(self._wall())

    def identify(self, request: web.BaseRequest, endpoint: Endpoint) -> Key | None:
        """The key of a request, None where the endpoint takes none.

        Raises InvalidKey, TooManyAttempts, KeyForbidden; ControlAway before control has told any keys.
        """
        scope = _SCOPES.get(endpoint.serves)
        if scope is None:
            return None
        if self.table is None:
            raise ControlAway("the keys are not known here yet; try again shortly", retry_after_s=1.0)
        headers = request.headers
        presented = presented_key(headers.getall(hdrs.AUTHORIZATION, []), headers.getall("x-api-key", []))
        try:
            key = self.table.find(presented, now_wall=self._wall())
        except InvalidKey:
            self._count(request, attempted=bool(presented))
            raise no_key() from None
        check_scope(key, scope)
        return key

    def _count(self, request: web.BaseRequest, *, attempted: bool) -> None:
        """A request without a good key came; raises TooManyAttempts when its address had its share of wrong ones."""
        now, peer = self._clock(), _peer(request.remote)
        wait_s = self._throttle.wait_s(peer, now)
        if wait_s > 0:
            raise TooManyAttempts("too many wrong keys from this address", retry_after_s=wait_s) from None
        if attempted:
            self._throttle.failed(peer, now)


def _peer(remote: str | None) -> str:
    """Whom wrong keys are counted for: an address, and of version 6 the network that one site has."""
    if not remote:
        return "unix"
    try:
        address = ip_address(remote.partition("%")[0])
    except ValueError:
        return remote
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return str(ip_network((int(address), _V6_SITE), strict=False))
    return str(address)
