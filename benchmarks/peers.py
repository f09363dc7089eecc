"""Which packages the peers come from, where they lie once prepared, and why one is not there.

Values and look-ups only: `prepare` and `unpack` write the folders that this module reads. Python packages lie in a
folder of their own each, with all they need, and run with nothing else on the path; Debian's are unpacked, not
installed, so that no service starts.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / ".peers"
HARNESS = "harness"
"""The folder of what gateway and harness need themselves, on a machine where they are not installed."""

_STAMP = ".prepared"
_REASON = ".missing"
_PREPARE = "not installed; run: python -m benchmarks prepare"


@dataclass(frozen=True, slots=True)
class Peer:
    """One peer: a pinned package of PyPI, or a program of Debian's with the libraries that few systems have."""

    name: str
    requirement: str = ""
    debian: tuple[str, ...] = ()
    program: str = ""
    """Where Debian's program lies in the unpacked package."""
    carried: bool = True
    """False: too large to be carried to another machine in good time."""

    @property
    def folder(self) -> Path:
        """Where it is prepared."""
        return FOLDER / self.name

    @property
    def pin(self) -> str:
        """What stands in the stamp of a folder that holds this very peer."""
        return self.requirement or " ".join(self.debian)


PEERS = (
    Peer("nginx", debian=("nginx",), program="usr/sbin/nginx"),
    Peer(
        "haproxy",
        debian=("haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1", "libpcre2-8-0"),
        program="usr/sbin/haproxy",
    ),
    Peer("vllm-router", requirement="vllm-router==0.1.17"),
    Peer("sglang-router", requirement="sglang-router==0.3.2"),
    Peer("smg", requirement="smg==1.13.0"),
    # The newest release whose every requirement the index has.
    Peer("litellm", requirement="litellm[proxy]==1.108.7", carried=False),
)


def peer(name: str) -> Peer:
    """The peer of that name; raises StopIteration for a name that nobody has."""
    return next(one for one in PEERS if one.name == name)


def prepared(name: str, pin: str) -> bool:
    """Whether the folder of that name holds what the pin says."""
    stamp = FOLDER / name / _STAMP
    return stamp.exists() and stamp.read_text().strip() == pin


def note_prepared(name: str, pin: str) -> None:
    """The folder of that name holds what the pin says."""
    (FOLDER / name / _STAMP).write_text(pin + "\n")
    (FOLDER / f"{name}{_REASON}").unlink(missing_ok=True)


def note_missing(name: str, reason: str) -> None:
    """Preparing failed, and why: it stands in the table of the next run."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}{_REASON}").write_text(" ".join(reason.split())[:300] + "\n")


def missing(name: str) -> str | None:
    """Why a peer cannot run, if it cannot."""
    wanted = peer(name)
    if prepared(name, wanted.pin) or (wanted.debian and _of_the_system(wanted)):
        return None
    reason = FOLDER / f"{name}{_REASON}"
    return reason.read_text().strip() if reason.exists() else _PREPARE


def _of_the_system(wanted: Peer) -> str | None:
    return shutil.which(wanted.name, path=os.environ.get("PATH", "") + ":/usr/sbin")


def program(name: str) -> list[str]:
    """The beginning of the command line of Debian's program: the unpacked one, else the system's."""
    wanted = peer(name)
    if not prepared(name, wanted.pin):
        return [_of_the_system(wanted) or wanted.name]
    libraries = wanted.folder / "usr" / "lib" / "x86_64-linux-gnu"
    return ["env", f"LD_LIBRARY_PATH={libraries}", str(wanted.folder / wanted.program)]


def module(name: str, *arguments: str) -> list[str]:
    """The beginning of the command line of a Python package: its folder and the standard library on the path."""
    return ["env", f"PYTHONPATH={peer(name).folder}", sys.executable, "-S", "-P", "-m", *arguments]
