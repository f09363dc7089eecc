"""Operators' tokens: made once, kept in a file, known in memory by their digests alone.

The file ``admin.token`` in the runtime directory is made at the first start and read at later ones; the command line
reads the same file.  A file that others can read is refused rather than mended: the token in it may be known.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path
from typing import Final

from msgspec import Struct

from gateway.errors import RuntimeDirUnusable

TOKEN_FILE: Final = "admin.token"  # noqa: S105 - a file's name
_SECRET_BYTES: Final = 32
_MIN_CHARS: Final = 32
_MAX_CHARS: Final = 512
_OTHERS: Final = 0o077
_REMEDY: Final = "remove it; a new one is made at the next start"


class Scope(IntEnum):
    """What a token allows; each includes those below.  OPEN takes no token."""

    OPEN = 0
    READ = 1
    OPERATE = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        """The scope as it is written."""
        return self.name.lower()


class Token(Struct, frozen=True, kw_only=True):
    """A known token: what to call it in the audit trail, what it allows, its SHA-256."""

    name: str
    scope: Scope
    digest: bytes


class TokenTable:
    """Every known token."""

    def __init__(self, tokens: Iterable[Token]) -> None:
        self._tokens = tuple(tokens)

    def find(self, presented: str) -> Token | None:
        """The token that was presented, or None; takes as long for any wrong one."""
        digest = digest_of(presented)
        found = None
        for token in self._tokens:
            if hmac.compare_digest(token.digest, digest):
                found = token
        return found


def digest_of(token: str) -> bytes:
    """SHA-256: tokens are random and long, so there is nothing that a slow hash would protect."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def load_or_make_token(runtime_dir: Path) -> Token:
    """The admin token of ``<runtime_dir>/admin.token``, made (mode 0600) if the file is missing; blocks on the disk.

    Raises RuntimeDirUnusable with the path and what to do: unwritable, not ours, open to others, not a token.
    """
    path = runtime_dir / TOKEN_FILE
    try:
        if not os.path.lexists(path):
            _make(path)
        text = _read(path)
    except OSError as error:
        raise RuntimeDirUnusable(f"{error.filename or path}: {error.strerror or error}") from error
    return Token(name=TOKEN_FILE, scope=Scope.ADMIN, digest=digest_of(text))


def _make(path: Path) -> None:
    # Written beside and linked into place: a crash leaves no half a token, and of two that start at once one wins.
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(_SECRET_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(beside, path)
        except FileExistsError:
            return
    finally:
        beside.unlink(missing_ok=True)


def _read(path: Path) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        _refuse_what_is_not_private(path, os.fstat(descriptor))
        text = os.read(descriptor, _MAX_CHARS + 2).decode("ascii", "replace").strip()
    finally:
        os.close(descriptor)
    if not _MIN_CHARS <= len(text) <= _MAX_CHARS or not text.isascii() or not text.isprintable() or " " in text:
        raise RuntimeDirUnusable(f"{path}: holds no token; {_REMEDY}")
    return text


def _refuse_what_is_not_private(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise RuntimeDirUnusable(f"{path}: not a regular file; {_REMEDY}")
    if status.st_uid != os.geteuid():
        raise RuntimeDirUnusable(f"{path}: belongs to another user (uid {status.st_uid}); {_REMEDY}")
    if status.st_mode & _OTHERS:
        mode = stat.S_IMODE(status.st_mode)
        raise RuntimeDirUnusable(f"{path}: open to others (mode {mode:04o}), so it may be known; {_REMEDY}")
