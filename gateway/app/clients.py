"""Builds what control knows of clients: their keys, out of the file, and their usage, out of the history.

Where clients need no keys there is nothing to build.  A file that is damaged when the whole gateway starts ends the
start; one that is damaged when only control starts again does not, since the keys of before are kept.
"""

from __future__ import annotations

import time
from pathlib import Path

from gateway.app.spec import SPEC_NAME, InstallSpec
from gateway.control.clients import Clients
from gateway.control.keepsake import Keepsake
from gateway.control.keysfile import KeysFile
from gateway.core.admission.quota import DAY_S, day_of
from gateway.core.admission.usage import UsageBook
from gateway.errors import StoreUnusable
from gateway.ports import History


def keys_file_of(spec: InstallSpec) -> KeysFile | None:
    """The file with the clients' keys, None where they need none."""
    return KeysFile(Path(spec.keys_path), wall=time.time) if spec.keys_path else None


def clients_of(spec: InstallSpec, keys_file: KeysFile | None, keepsake: Keepsake) -> Clients:
    """What is known of clients at the start.  Raises ConfigError when the keys cannot be known."""
    if keys_file is None:
        return Clients()
    kept = keepsake.keys(newer_than=Path(spec.runtime_dir) / SPEC_NAME)
    clients = Clients(keys=keys_file.first(kept), usage=UsageBook(complete=False))
    keys_file.follow(clients)
    return clients


async def read_usage(clients: Clients, history: History) -> None:
    """Have the usage of today begin with what the history knows; without it counts begin now and say so."""
    if clients.keys is None:
        return
    now_wall = time.time()
    try:
        clients.begin(await history.usage(day_of(now_wall) * DAY_S), now_wall)
    except StoreUnusable:
        return
