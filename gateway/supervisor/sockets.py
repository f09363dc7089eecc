"""The listening sockets: made once, kept over every death of a child, closed in order at the end.

With one worker an address has one socket; with several, each worker slot has its own (``SO_REUSEPORT``), so that the
kernel spreads connections.  Every socket is bound **without** ``SO_REUSEPORT`` first: with it a stranger's listener of
the same user would silently share the port.  Unix sockets and those inherited from the service manager are shared by
all slots.  A closed listener refuses at once, but never one of the service manager's: it goes on queueing there.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from gateway.core.address import UNIX, Address, address_of
from gateway.errors import OperatorError, PortInUse
from gateway.supervisor import occupant

BACKLOG: Final = 2048
_FIRST_INHERITED_FD: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One listening socket.

    ``path`` and ``inode`` are the file of a Unix socket that is ours to remove; ``ours``: not the service manager's.
    """

    sock: socket.socket
    address: str
    path: str = ""
    inode: int = 0
    ours: bool = True


class Listeners:
    """Owns every listening socket of this gateway.  A context manager that closes them."""

    def __init__(self, *, slots: Sequence[Sequence[Listener]], operators: Sequence[Listener]) -> None:
        self._slots = slots
        self._operators = operators
        self._shut: set[int] = set()

    @property
    def slot_fds(self) -> list[list[int]]:
        """Descriptors of the client listeners, per worker slot."""
        return [[listener.sock.fileno() for listener in slot] for slot in self._slots]

    @property
    def operator_fds(self) -> list[int]:
        """Descriptors of the operator listeners."""
        return [listener.sock.fileno() for listener in self._operators]

    @property
    def client_addresses(self) -> list[str]:
        """Where clients connect, with the ports that were really taken."""
        return list(dict.fromkeys(listener.address for slot in self._slots for listener in slot))

    @property
    def operator_addresses(self) -> list[str]:
        """Where operators connect."""
        return [listener.address for listener in self._operators]

    def refuse_clients(self, *, now_at_all_events: bool) -> bool:
        """Shut each client listener whose accept queue is empty; True when none is left.

        ``now_at_all_events`` shuts the rest too: what waits in their queues is reset.
        """
        left = False
        for listener in self._client_listeners():
            fd = listener.sock.fileno()
            if not listener.ours or fd in self._shut:
                continue
            if now_at_all_events or not _has_waiting(listener.sock):
                listener.sock.shutdown(socket.SHUT_RD)
                self._shut.add(fd)
            else:
                left = True
        return not left

    def _client_listeners(self) -> Iterator[Listener]:
        """Each client listener once."""
        return iter({listener.sock.fileno(): listener for slot in self._slots for listener in slot}.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        for listener in (*self._client_listeners(), *self._operators):
            if listener.path and _inode(listener.path) == listener.inode:
                Path(listener.path).unlink()
            listener.sock.close()


def open_listeners(
    *, clients: Sequence[str], operators: Sequence[str], slots: int, environ: Mapping[str, str]
) -> Listeners:
    """Listen on every address, or on none: raises PortInUse or OperatorError naming the address.

    Sockets passed by the service manager (``LISTEN_FDS``) replace the configured addresses of their kind: those named
    "operators" the operators', all others the clients'.
    """
    passed = _inherited(environ)
    with ExitStack() as undo:
        own_slots = [passed["clients"]] * slots if passed["clients"] else _per_slot(clients, slots, undo)
        own_operators = passed["operators"] or [row[0] for row in (_listen(text, 1, undo) for text in operators)]
        undo.pop_all()
    return Listeners(slots=own_slots, operators=own_operators)


def _per_slot(addresses: Sequence[str], slots: int, undo: ExitStack) -> list[list[Listener]]:
    rows = [_listen(text, slots, undo) for text in addresses]
    return [[row[slot] for row in rows] for slot in range(slots)]


def _listen(text: str, slots: int, undo: ExitStack) -> list[Listener]:
    """Listeners of one address, one per slot; a Unix socket is the same in each."""
    try:
        address = address_of(text, lowest_port=0)
    except ValueError as error:
        raise OperatorError(f"{text}: cannot listen: {error}") from error
    if address.path:
        return [_listen_unix(address, undo)] * slots
    first = _listen_tcp(address, undo=undo, shared=slots > 1)
    taken = Address(host=address.host, port=first.sock.getsockname()[1])
    return [first, *(_listen_tcp(taken, undo=undo, sibling=True) for _ in range(slots - 1))]


def _listen_tcp(address: Address, *, undo: ExitStack, shared: bool = False, sibling: bool = False) -> Listener:
    """``shared``: siblings will join this address; ``sibling``: join it."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    sock = undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
    sock.settimeout(0)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    try:
        if sibling:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((address.host, address.port))
        if shared:  # only now: bound without it, the address is proven to be nobody else's
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.listen(BACKLOG)
    except OSError as error:
        raise _refused(str(address), error, occupant.of_port(address.port)) from error
    return Listener(sock=sock, address=_name_of(sock))


def _listen_unix(address: Address, undo: ExitStack) -> Listener:
    path = address.path
    sock = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    try:
        _clear_stale(path)
        sock.settimeout(0)
        sock.bind(path)
        Path(path).chmod(0o660)
        sock.listen(BACKLOG)
    except OSError as error:
        raise _refused(str(address), error, "") from error
    return Listener(sock=sock, address=str(address), path=path, inode=_inode(path))


def _clear_stale(path: str) -> None:
    """Remove the socket file of a dead process.  Raises PortInUse when one answers, OSError when it is another file."""
    try:
        mode = Path(path).lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OperatorError(f"{UNIX}{path}: there is a file that is no socket; it is left alone")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink()
            return
        raise PortInUse(_in_use(f"{UNIX}{path}", occupant.of_socket(probe)))


def _refused(text: str, error: OSError, who: str) -> OperatorError:
    if error.errno == errno.EADDRINUSE:
        return PortInUse(_in_use(text, who))
    return OperatorError(f"{text}: cannot listen: {(error.strerror or 'unknown reason').lower()}")


def _in_use(text: str, who: str) -> str:
    return f"{text}: already in use by {who}" if who else f"{text}: already in use by another process"


def _inherited(environ: Mapping[str, str]) -> dict[str, list[Listener]]:
    """Listening sockets that the service manager opened, by kind."""
    kinds: dict[str, list[Listener]] = {"clients": [], "operators": []}
    count = environ.get("LISTEN_FDS", "")
    if environ.get("LISTEN_PID") != str(os.getpid()) or not count.isdecimal():
        return kinds
    names = environ.get("LISTEN_FDNAMES", "").split(":")
    for index in range(int(count)):
        fd = _FIRST_INHERITED_FD + index
        os.set_inheritable(fd, False)  # noqa: FBT003 - the standard library's signature
        sock = socket.socket(fileno=fd)
        if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise OperatorError(f"descriptor {fd} from the service manager does not listen")
        sock.settimeout(0)
        kind = "operators" if index < len(names) and names[index] == "operators" else "clients"
        kinds[kind].append(Listener(sock=sock, address=_name_of(sock), ours=False))
    return kinds


def _name_of(sock: socket.socket) -> str:
    name = sock.getsockname()
    return f"{UNIX}{name}" if sock.family == socket.AF_UNIX else str(Address(host=name[0], port=name[1]))


def _has_waiting(sock: socket.socket) -> bool:
    """Whether a connection waits to be accepted."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _inode(path: str) -> int:
    """Which file is at ``path`` now; 0 when none is."""
    try:
        return Path(path).lstat().st_ino
    except OSError:
        return 0
