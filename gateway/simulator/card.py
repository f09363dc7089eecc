"""The simulated box on disk, shared by all simulated engines that name the same folder.

Shell.  Memory is held by real processes (``core_process.py``), so that an orphan holds it too and its death frees it,
whoever watches; a file whose process is gone is removed by the next reader.  What is wrong with the box is in one file
that outlives every engine: a restart cures nothing of it.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from gateway.simulator.box_record import read_record, written
from gateway.simulator.gpu import BoxRecord, GpuHost
from gateway.simulator.presets import Box

_CLAIM_EVERY_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Held:
    """What one process holds: ``bytes_each`` on each of these GPUs."""

    pid: int
    name: str
    gpus: tuple[int, ...]
    bytes_each: int


def holders(card: Path) -> list[Held]:
    """Return the living processes that hold memory."""
    found = []
    for path in sorted(card.glob("[0-9]*")) if card.is_dir() else []:
        if not path.name.isdigit():
            continue
        if not _is_core(int(path.name)):
            path.unlink(missing_ok=True)
            continue
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            held = Held(pid=told["pid"], name=told["name"], gpus=tuple(told["gpus"]), bytes_each=told["bytes"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # it ended meanwhile, or the file is not its own
        found.append(held)
    return found


def worker_pids(card: Path) -> list[int]:
    """Return the process ids of the living Workers on this card, by rank; none where one GPU needs none."""
    ranked = [(holder.gpus, holder.pid) for holder in holders(card) if "Worker" in holder.name]
    return [pid for _, pid in sorted(ranked)]


def _is_core(pid: int) -> bool:
    """Whether that process lives and is a simulated EngineCore or Worker, and not a later process with its number."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z" and b"core_process" in words


def _is_locked(lock: BinaryIO) -> bool:
    """Whether the lock is ours now."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Card:
    """The simulated box as this process sees it; owner of its view, not of what others hold or do."""

    def __init__(self, folder: Path, box: Box, *, say: Callable[[str], None] = lambda _: None) -> None:
        """``say(line)`` is told of what is recorded and cannot be."""
        self.folder = folder
        self._box = box
        self._say = say
        self._host = GpuHost(box)
        self._known: set[int] = set()
        self._record = folder / "box.json"
        self._stamp = 0

    def host(self) -> GpuHost:
        """Return the box with what living processes hold of it now, and with what is wrong there."""
        held = {holder.pid: holder for holder in holders(self.folder)}
        for pid in self._known - held.keys():
            self._host.release(pid)
        for holder in held.values():
            self._host.hold(holder.pid, holder.name, bytes_each=holder.bytes_each, gpus=holder.gpus)
        self._known = set(held)
        self.refresh()
        return self._host

    def refresh(self) -> bool:
        """Read what is wrong with the box if somebody has changed it; whether somebody had."""
        try:
            stamp = self._record.stat().st_mtime_ns
            if stamp == self._stamp:
                return False
            data = self._record.read_bytes()
        except OSError:
            return False  # nothing was ever wrong
        self._stamp = stamp
        record, dropped = read_record(data, self._box)
        for line in dropped:
            self._say(f"{self._record}: dropped {line}")
        if record is None:
            return False
        self._host.restore(record)
        return True

    def count_start(self) -> int:
        """The number of the start that this is on this card, from 1; ValueError where there can be no such folder."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with (self.folder / "starts").open("a+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.seek(0)
                told = file.read().strip()
                number = int(told) + 1 if told.isdigit() else 1
                file.truncate(0)
                file.write(b"%d" % number)
        except OSError as error:
            raise ValueError(f"cannot use {self.folder} as a card: {error.strerror}") from error
        return number

    @asynccontextmanager
    async def claim(self) -> AsyncIterator[None]:
        """Be the only one that looks for room and takes it; others wait, and none of them stops its loop for it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "claim").open("wb") as lock:
            while not _is_locked(lock):  # noqa: ASYNC110 - a lock of another process sets no event
                await asyncio.sleep(_CLAIM_EVERY_S)
            yield

    def discard(self) -> None:
        """Remove the folder, unless somebody living holds something, or something is wrong with the box."""
        if not holders(self.folder) and self.host().record() == BoxRecord():
            shutil.rmtree(self.folder, ignore_errors=True)

    def change(self, apply: Callable[[GpuHost], None]) -> None:
        """Change what is wrong with the box, for every engine on it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.refresh()
            apply(self._host)
            fresh = self.folder / "box.json.new"
            fresh.write_bytes(written(self._host.record()))
            self._stamp = fresh.stat().st_mtime_ns
            fresh.replace(self._record)
