"""Asks the admin API: one request, one answer, over TCP or a Unix socket; every failure in words.

Synchronous and small: a command asks once or twice and ends.  Follows no redirect and no proxy setting, so the token
goes where it was meant to go.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from gateway.cli.exits import CommandFailed, Exit
from gateway.cli.target import Target

TIMEOUT_S: Final = 10.0
_IN_PART: Final = frozenset({207, 502})
"""Statuses of an order that some backends, or none, have carried out: what each said is in the answer."""

_MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
_UNIX: Final = "unix:"
_HINT: Final = "is it running? `pacekeeper serve --config FILE` starts it; --operators URL names another"
_HINT_SILENT: Final = "its control process may be starting again; requests are served meanwhile"

Shape = TypeVar("Shape")


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, *, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path
        self._timeout_s = timeout_s

    def connect(self) -> None:
        """Connect to the socket's file instead of a host."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self._timeout_s)
        self.sock.connect(self._path)


class AdminClient:
    """One gateway's admin API, as seen with one token."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._timeout_s = TIMEOUT_S

    def get(self, *path: str, query: dict[str, Any] | None = None) -> bytes:
        """The JSON body at ``/admin/v1/`` and the parts of ``path``; parts and ``query`` may hold any text.

        Raises CommandFailed: not reachable, not authorised, not found, or an error that the gateway reports.
        """
        wanted = {key: value for key, value in (query or {}).items() if value not in {None, ""}}
        url = _url(path)
        return self._ask("GET", f"{url}?{urlencode(wanted)}" if wanted else url)

    def post(self, *path: str, body: dict[str, Any]) -> bytes:
        """Send ``body`` as JSON; the answer's JSON body.  Raises CommandFailed."""
        return self._ask("POST", _url(path), body=msgspec.json.encode(body))

    def order(self, *path: str, query: str = "", timeout_s: float) -> bytes:
        """Post an order that may be carried out in part; the answer's JSON body.  Raises CommandFailed."""
        self._timeout_s = timeout_s
        return self._ask("POST", _url(path) + query, body=b"", also=_IN_PART)

    def delete(self, *path: str) -> bytes:
        """Delete what is there; the answer's JSON body.  Raises CommandFailed."""
        return self._ask("DELETE", _url(path))

    def _ask(self, method: str, url: str, *, body: bytes | None = None, also: frozenset[int] = frozenset()) -> bytes:
        status, answer = self._exchange(method, url, body=body)
        if status in {200, 201} or status in also:
            return answer
        raise self._refused(status, answer)

    def _exchange(self, method: str, url: str, *, body: bytes | None) -> tuple[int, bytes]:
        connection = self._connection()
        try:
            connection.connect()
            connection.request(method, url, body=body, headers=self._headers())
            answer = connection.getresponse()
            return answer.status, answer.read(_MAX_ANSWER_BYTES)
        except ssl.SSLCertVerificationError as error:
            raise self._unreachable(f"its certificate is not trusted: {error.verify_message}") from error
        except (http.client.HTTPException, ssl.SSLError) as error:
            raise self._unreachable("what answers there speaks another protocol") from error
        except TimeoutError as error:
            raise self._unreachable(f"no answer within {self._timeout_s:g} s", hint=_HINT_SILENT) from error
        except OSError as error:
            raise self._unreachable((error.strerror or str(error)).lower()) from error
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        url = self._target.url
        if url.startswith(_UNIX):
            return _UnixConnection(url.removeprefix(_UNIX), timeout_s=self._timeout_s)
        scheme, _, place = url.partition("://")
        host, _, port = place.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if scheme == "https":
            return http.client.HTTPSConnection(host, int(port), timeout=self._timeout_s)
        return http.client.HTTPConnection(host, int(port), timeout=self._timeout_s)

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._target.token.read()}", "Accept": "application/json"}

    def _unreachable(self, reason: str, *, hint: str = _HINT) -> CommandFailed:
        message = f"no gateway answers at {self._target.url}: {reason}"
        return CommandFailed(message, exit_code=Exit.UNREACHABLE, code="unreachable", hint=hint)

    def _refused(self, status: int, body: bytes) -> CommandFailed:
        """The gateway's own error in its own words."""
        try:
            detail = msgspec.json.decode(body, type=dict[str, dict[str, Any]])["error"]
            message, code = str(detail["message"]), str(detail.get("code") or status)
        except (msgspec.MsgspecError, KeyError):
            return CommandFailed(
                f"{self._target.url} answers with status {status}, but not like the admin API of a gateway",
                exit_code=Exit.UNREACHABLE,
                code="not_a_gateway",
                hint="--operators URL must name the operators' address, not that of the clients",
            )
        match status:
            case 401 | 403:
                hint = "the token may be that of another gateway or an earlier start; --token-file FILE names another"
                return CommandFailed(message, exit_code=Exit.NOT_AUTHORISED, code=code, hint=hint)
            case 404:
                return CommandFailed(message, exit_code=Exit.NOT_FOUND, code=code)
            case _:
                return CommandFailed(message, exit_code=Exit.FAULT, code=code)


def _url(path: tuple[str, ...]) -> str:
    return "/admin/v1/" + "/".join(quote(part, safe="") for part in path)


def decode(body: bytes, shape: type[Shape]) -> Shape:
    """``body`` as ``shape``; raises CommandFailed when the gateway is of a release that says it otherwise."""
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.MsgspecError as error:
        raise CommandFailed(
            f"the gateway's answer is not understood: {error}",
            exit_code=Exit.FAULT,
            code="other_shape",
            hint="is it of another version? `pacekeeper status --json` and `pacekeeper version` tell",
        ) from error
