"""The install specification: what every process of one gateway needs to know before its first message.

Made once from the settings by the command that serves, written as JSON into the runtime directory and read by each
child, so a child needs neither YAML nor settings models to start.  Holds paths, addresses and limits, never a secret.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from gateway.core.address import link_path, socket_path_fault
from gateway.errors import GatewayFault, RuntimeDirUnusable

if TYPE_CHECKING:
    from gateway.settings import Settings  # the children read the specification and never load the settings' library

SPEC_VERSION: Final = 1
SPEC_NAME: Final = "install.json"


class InstallSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Install settings as the children see them; a change needs a restart.  All paths are absolute.

    ``clients`` and ``operators`` are the configured listen addresses, for messages: the sockets themselves are
    inherited.  ``operator_names``: further host names by which the operators' are asked.  ``keys_path``: the file with
    the clients' keys, "" where none are asked for.
    ``tls_certificate`` and ``tls_key``: files for the clients' TCP addresses, "" for plain HTTP.
    ``client_head_s``: time to receive a whole request head; ``client_idle_s``: how long a connection may stay open
    between requests;
    ``connections``: bound of open client connections of one worker; ``drain_s``: how long streams may go on after a
    stop was asked for; ``store_keep_s`` and ``store_keep_bytes``: retention of the history.
    """

    version: int = SPEC_VERSION
    config_path: str
    runtime_dir: str
    store_path: str
    workers: int
    clients: tuple[str, ...]
    operators: tuple[str, ...]
    operator_names: tuple[str, ...] = ()
    keys_path: str = ""
    tls_certificate: str = ""
    tls_key: str = ""
    log_format: str = "json"
    log_level: str = "info"
    drain_s: float = 30.0
    client_head_s: float = 30.0
    client_idle_s: float = 75.0
    connections: int = 16384
    store_keep_s: float = 30 * 86400.0
    store_keep_bytes: int = 1024**3

    @property
    def link_path(self) -> str:
        """Unix socket that control makes and workers connect to."""
        return link_path(self.runtime_dir)


def install_spec(settings: Settings) -> InstallSpec:
    """What ``settings`` say about this installation."""
    install = settings.install
    return InstallSpec(
        config_path=str(settings.path),
        runtime_dir=str(install.runtime_dir),
        store_path=str(install.store.path),
        workers=len(os.sched_getaffinity(0)) if install.workers == "auto" else install.workers,
        clients=tuple(str(address) for address in install.clients.listen),
        operators=tuple(str(address) for address in install.operators.listen),
        operator_names=install.operators.names,
        keys_path=str(install.auth.keys_file) if install.auth.clients == "keys" else "",
        tls_certificate=install.clients.tls.certificate,
        tls_key=install.clients.tls.key,
        log_format=install.log.format,
        log_level=install.log.level,
        drain_s=install.clients.drain_s,
        client_head_s=install.clients.head_s,
        client_idle_s=install.clients.idle_s,
        connections=install.clients.connections,
        store_keep_s=install.store.keep_days * 86400.0,
        store_keep_bytes=install.store.keep_bytes,
    )


def prepare_runtime_dir(path: Path) -> None:
    """Make the directory for sockets and the token, private to this user.

    Raises RuntimeDirUnusable when it cannot be made, is not ours alone, or is too deep for a Unix socket's path.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.lstat()
    except OSError as error:
        raise RuntimeDirUnusable(f"{path}: the runtime directory cannot be made: {error.strerror}") from error
    if not stat.S_ISDIR(status.st_mode):
        raise RuntimeDirUnusable(f"{path}: the runtime directory must be a directory, not a link")
    if status.st_uid != os.geteuid():
        raise RuntimeDirUnusable(f"{path}: the runtime directory belongs to uid {status.st_uid}, not to us")
    if status.st_mode & 0o077:
        raise RuntimeDirUnusable(
            f"{path}: the runtime directory is open to others (mode {stat.S_IMODE(status.st_mode):04o}); chmod 0700 it"
        )
    if not os.access(path, os.W_OK | os.X_OK):
        raise RuntimeDirUnusable(f"{path}: the runtime directory is not writable")
    if fault := socket_path_fault(link_path(str(path))):
        raise RuntimeDirUnusable(f"{path}: the runtime directory is too deep for the socket in it: {fault}")


def write_spec(spec: InstallSpec) -> Path:
    """Prepare the runtime directory and write the specification there in one move; returns its path.

    Raises RuntimeDirUnusable.
    """
    runtime_dir = Path(spec.runtime_dir)
    prepare_runtime_dir(runtime_dir)
    path = runtime_dir / SPEC_NAME
    unfinished = path.with_suffix(f".{os.getpid()}")
    try:
        unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(spec)))
        unfinished.chmod(0o600)
        unfinished.replace(path)
    except OSError as error:
        raise RuntimeDirUnusable(f"{path}: cannot be written: {error.strerror}") from error
    return path


def read_spec(path: Path) -> InstallSpec:
    """The specification that a child was started with.

    Raises GatewayFault: whoever started the child wrote the file, so an unreadable one is a defect of ours.
    """
    try:
        spec = msgspec.json.decode(path.read_bytes(), type=InstallSpec)
    except (OSError, msgspec.MsgspecError) as error:
        raise GatewayFault(f"{path}: no install specification: {error}") from error
    if spec.version != SPEC_VERSION:
        raise GatewayFault(
            f"{path}: install specification of version {spec.version}, this release reads {SPEC_VERSION}"
        )
    return spec
