"""The file with the clients' keys: read when it changes, written when an operator makes or ends a key.

Owner of the file.  All or nothing: with one fault in it the keys in use stay, and the loop is told what is wrong.  A
change by hand is seen within a second; a change by the admin API reads the file anew first, so that neither loses the
other's, and replaces it in one move.  A key is shown to whoever makes it and to nobody after that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from gateway.control import inbox
from gateway.control.clients import Clients
from gateway.core.admission.keys import PREFIX, Key, digest_of
from gateway.errors import BadRequest, ConfigError, NotFound, StoreUnusable
from gateway.ports import MadeKey
from gateway.settings.keys import MAX_KEYS, parse_keys, read_keys, write_keys

LOOK_S: Final = 1.0
_SECRET_BYTES: Final = 32
_ID_BYTES: Final = 4

Signature = tuple[int, int, int, int] | None


class KeysFile:
    """See the module.  Implements :class:`gateway.ports.Keys`."""

    def __init__(self, path: Path, *, wall: Callable[[], float]) -> None:
        """``post`` tells the loop; it is set before anything is watched."""
        self.post: Callable[[inbox.Event], None] = lambda _: None
        self._path = path
        self._clients = Clients()
        self._wall = wall
        self._seen: Signature = None
        self._changing = asyncio.Lock()

    def follow(self, clients: Clients) -> None:
        """``clients`` has the keys in use."""
        self._clients = clients

    def _keys(self) -> tuple[Key, ...]:
        return self._clients.keys or ()

    def first(self, kept: str) -> tuple[Key, ...]:
        """The keys to begin with: the file's; where it is damaged those that an earlier life has ``kept``.

        A file that is not there yet holds no key.  Raises ConfigError.
        """
        self._seen = signature(self._path)
        try:
            return read_keys(self._path) if self._seen is not None or not kept else parse_keys(kept, str(self._path))
        except ConfigError:
            if kept:
                self._seen = None  # to be looked at again, and told
                return parse_keys(kept, str(self._path))
            if signature(self._path) is None:
                return ()
            raise

    async def run(self) -> None:
        """Watch the file, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            async with self._changing:
                found = await asyncio.to_thread(signature, self._path)
                if found != self._seen or found is None:
                    await self._read(found)

    async def reload(self) -> None:
        """Read the file now, whether it seems changed or not."""
        async with self._changing:
            await self._read(await asyncio.to_thread(signature, self._path))

    async def _read(self, found: Signature) -> None:
        self._seen = found
        if found is None and not self._keys():
            return  # nobody has made a key yet
        try:
            keys = await asyncio.to_thread(read_keys, self._path)
        except ConfigError as error:
            self.post(inbox.KeysBad(str(self._path), tuple(error.message.splitlines())))
        else:
            self.post(inbox.KeysRead(keys))

    # --- what operators order -------------------------------------------------------------------------------------

    def all(self) -> tuple[Key, ...]:
        """Every key in use, those that were revoked among them."""
        return self._keys()

    async def create(self, wanted: Key) -> MadeKey:
        """Add a key like ``wanted``, whose digest is made here, and its id where it is "".

        Raises BadRequest (the id is taken, or it is one too many), ConfigError (the file is damaged), StoreUnusable.
        """
        secret = PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
        key = replace(
            wanted,
            id=wanted.id or f"k-{secrets.token_hex(_ID_BYTES)}",
            digest=digest_of(secret),
            created_wall=float(int(self._wall())),
        )

        def add(keys: tuple[Key, ...]) -> tuple[Key, ...]:
            if any(it.id == key.id for it in keys):
                raise BadRequest("a key of that id is there already, or was", param="id")
            if len(keys) >= MAX_KEYS:
                raise BadRequest(f"there are {MAX_KEYS} keys already; remove revoked ones from the file")
            return (*keys, key)

        await self._change(add)
        return MadeKey(key=secret, made=key)

    async def revoke(self, key_id: str) -> Key:
        """End a key; its entry stays, so that its id is not used again.

        Raises NotFound, ConfigError, StoreUnusable.
        """
        now_wall = float(int(self._wall()))

        def end(keys: tuple[Key, ...]) -> tuple[Key, ...]:
            if not any(it.id == key_id for it in keys):
                raise NotFound("there is no key of that id", param="id")
            return tuple(
                replace(it, revoked_wall=now_wall) if it.id == key_id and it.revoked_wall is None else it for it in keys
            )

        keys = await self._change(end)
        return next(it for it in keys if it.id == key_id)

    async def _change(self, change: Callable[[tuple[Key, ...]], tuple[Key, ...]]) -> tuple[Key, ...]:
        async with self._changing:
            keys, self._seen = await asyncio.to_thread(self._rewrite, change)
            self.post(inbox.KeysRead(keys))
            return keys

    def _rewrite(self, change: Callable[[tuple[Key, ...]], tuple[Key, ...]]) -> tuple[tuple[Key, ...], Signature]:
        there = signature(self._path) is not None
        if not there and self._keys():
            raise ConfigError(f"{self._path}: the file of keys is gone; put it back, or restart without keys")
        keys = change(read_keys(self._path) if there else ())
        text = write_keys(keys)
        parse_keys(text.decode(), str(self._path))  # what could not be read again must never be written
        try:
            replace_file(self._path, text)
        except OSError as error:
            raise StoreUnusable(f"{self._path}: cannot be written: {(error.strerror or '').lower()}") from error
        return keys, signature(self._path)


def signature(path: Path) -> Signature:
    """What changes with a file: time, size, which file it is, who may read it; None when it is not there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode


def replace_file(path: Path, data: bytes) -> None:
    """Put ``data`` at ``path`` in one move, on the disk when it returns, readable by us alone.  Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = path.resolve()
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
