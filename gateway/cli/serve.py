"""`pacekeeper serve`: checks the configuration, then becomes the supervisor, in this very process.

Everything that can be wrong is said before the first child starts.  One gateway to a runtime directory: a lock there
is held until this process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.app.spec import InstallSpec, install_spec, prepare_runtime_dir, write_spec
from gateway.core.supervision.state import SupervisionPolicy
from gateway.errors import RuntimeDirUnusable
from gateway.settings import load
from gateway.supervisor import Plan
from gateway.supervisor import run as supervise

LOCK_NAME = "gateway.lock"


def run(path: Path) -> int:
    """Serve until stopped; the exit code.  Raises OperatorError with what has to be put right first."""
    spec = install_spec(load(path))
    runtime_dir = Path(spec.runtime_dir)
    prepare_runtime_dir(runtime_dir)
    with alone_in(runtime_dir):
        return supervise(plan(spec, write_spec(spec)))


def plan(spec: InstallSpec, spec_path: Path) -> Plan:
    """What the supervisor runs: this interpreter with the two kinds of children.

    ``-P``: a file in the current directory must not be taken for a module of ours or of a library.
    """
    start, told = (sys.executable, "-P", "-m"), ("--spec", str(spec_path))
    return Plan(
        workers=spec.workers,
        clients=spec.clients,
        operators=spec.operators,
        worker=(*start, "gateway.app.worker_main", *told),
        control=(*start, "gateway.app.control_main", *told),
        policy=SupervisionPolicy(drain_s=spec.drain_s),
        log_format=spec.log_format,
        log_level=spec.log_level,
    )


@contextmanager
def alone_in(runtime_dir: Path) -> Iterator[None]:
    """Hold the runtime directory; raises RuntimeDirUnusable when another gateway does."""
    path = runtime_dir / LOCK_NAME
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise RuntimeDirUnusable(f"{path}: cannot be opened: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            pid = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
            raise RuntimeDirUnusable(
                f"{runtime_dir}: another gateway runs with this runtime directory{f' (pid {pid})' if pid else ''}"
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
