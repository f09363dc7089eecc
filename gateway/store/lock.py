"""One gateway for one history: who has the file holds a lock beside it, and another one is refused by name.

Two writers would not damage the file, but each would forget the other's rows and count only its own.  The lock is
the kernel's (flock), so it ends with its process, however that ends; the file stays and means nothing by itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from gateway.errors import StoreUnusable
from gateway.store.diagnose import explain


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock of the history at ``path``.

    Raises StoreUnusable at once when another process has it, with that one's number, and when it cannot be made.
    """
    lock = path.with_name(f"{path.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        place = path if error.filename == str(lock) else error.filename
        raise StoreUnusable(explain(OSError(error.errno, error.strerror, str(place)), path)) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
            raise StoreUnusable(
                f"{path}: another gateway (control process {holder}) writes this history; stop that one, or give this"
                " one a store.path and a runtime_dir of its own"
            ) from None
        except OSError as error:
            raise StoreUnusable(explain(error, path)) from error
        with contextlib.suppress(OSError):  # a full disk: the lock holds without the number
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode("ascii"), 0)
        yield
    finally:
        os.close(descriptor)
