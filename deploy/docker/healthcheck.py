"""Ask the gateway in this container whether it is alive; exit status 0 means yes.

Needs only the standard library.  PACEKEEPER_HEALTHCHECK names what to ask: an address and path of the client port
(default 127.0.0.1:8080/health), or unix:SOCKET:PATH where clients come by a Unix socket.
"""

from __future__ import annotations

import http.client
import os
import socket
import sys

DEFAULT = "127.0.0.1:8080/health"
TIMEOUT_S = 2.5


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket's path; the host name is only for the Host header."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(self._path)


def ask(target: str) -> int:
    """Return the HTTP status with which `target` answers; raises OSError when nobody does."""
    connection: http.client.HTTPConnection
    if target.startswith("unix:"):
        socket_path, _, path = target.removeprefix("unix:").partition(":")
        connection = UnixConnection(socket_path)
    else:
        address, slash, path = target.partition("/")
        path = slash + path
        connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path or "/health")
        return connection.getresponse().status
    finally:
        connection.close()


def main() -> int:
    """Exit status: 0 for a 200, otherwise 1 with the reason on stderr."""
    target = os.environ.get("PACEKEEPER_HEALTHCHECK", DEFAULT)
    try:
        status = ask(target)
    except (OSError, http.client.HTTPException) as error:
        print(f"{target}: {error}", file=sys.stderr)
        return 1
    if status != http.client.OK:
        print(f"{target}: status {status}", file=sys.stderr)
    return 0 if status == http.client.OK else 1


if __name__ == "__main__":
    sys.exit(main())
