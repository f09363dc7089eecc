"""What control leaves to its next life: generation, models of each backend, configuration, keys and orders.

Written into the runtime directory whenever it changes, read once at the start.  With it a control that was killed
makes the same fleet at once, even while a busy engine does not answer probes or somebody is editing the file; a start
of the whole gateway reads the file anew.  A keepsake that is torn, foreign or missing is no error: then there is
nothing to remember.  Holds no secrets: of keys there are digests.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from gateway.core.routing.adapters import Orders
from gateway.fleet import Remembered

FORMAT: Final = 1
FLEET_NAME: Final = "fleet.json"
CONFIG_NAME: Final = "applied.yaml"
KEYS_NAME: Final = "applied-keys.json"
ADAPTERS_NAME: Final = "adapters.json"
MAX_BYTES: Final = 32 * 1024 * 1024


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    generation: int
    backends: tuple[Remembered, ...] = ()


class _KeptAdapters(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    orders: dict[str, dict[str, bool]] = {}


class Keepsake:
    """Owner of four files in the runtime directory.

    ``problem`` says why the last write failed, "" when it did not.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.problem = ""

    def fleet(self) -> tuple[int, tuple[Remembered, ...]]:
        """Generation of the last snapshot and what was known of the backends; (0, ()) when nothing usable is there."""
        try:
            kept = msgspec.json.decode(self._read(FLEET_NAME), type=_Kept)
        except (OSError, ValueError, msgspec.MsgspecError, RecursionError):
            return 0, ()
        if kept.format != FORMAT or kept.generation < 0:
            return 0, ()
        return kept.generation, kept.backends

    def keep_fleet(self, generation: int, backends: tuple[Remembered, ...]) -> None:
        """Remember the snapshot that was just published."""
        self._write(FLEET_NAME, msgspec.json.encode(_Kept(format=FORMAT, generation=generation, backends=backends)))

    def config(self, *, newer_than: Path) -> str:
        """The configuration that was applied last, if that was after ``newer_than`` was written; else ""."""
        return self._text(CONFIG_NAME, newer_than)

    def keys(self, *, newer_than: Path) -> str:
        """The clients' keys (digests) that were in use last, if that was after ``newer_than`` was written; else ""."""
        return self._text(KEYS_NAME, newer_than)

    def keep_keys(self, text: bytes) -> None:
        """Remember ``text`` as the clients' keys in use."""
        self._write(KEYS_NAME, text)

    def adapters(self) -> dict[str, dict[str, bool]]:
        """What operators ordered of LoRA adapters, by pool and name; {} when nothing usable is there."""
        try:
            kept = msgspec.json.decode(self._read(ADAPTERS_NAME), type=_KeptAdapters)
        except (OSError, ValueError, msgspec.MsgspecError, RecursionError):
            return {}
        return kept.orders if kept.format == FORMAT else {}

    def keep_adapters(self, orders: Orders) -> None:
        """Remember what operators ordered of LoRA adapters; survives a start of the whole gateway."""
        kept = _KeptAdapters(format=FORMAT, orders={pool: dict(of_pool) for pool, of_pool in orders.items()})
        self._write(ADAPTERS_NAME, msgspec.json.encode(kept))

    def _text(self, name: str, newer_than: Path) -> str:
        try:
            if (self._folder / name).stat().st_mtime_ns <= newer_than.stat().st_mtime_ns:
                return ""
            return self._read(name).decode()
        except (OSError, ValueError):
            return ""

    def keep_config(self, text: str) -> None:
        """Remember ``text`` as the configuration in use."""
        self._write(CONFIG_NAME, text.encode("utf-8", "surrogatepass"))

    def _read(self, name: str) -> bytes:
        path = self._folder / name
        if path.stat().st_size > MAX_BYTES:
            raise ValueError("too large")
        return path.read_bytes()

    def _write(self, name: str, data: bytes) -> None:
        path = self._folder / name
        unfinished = path.with_suffix(".unfinished")
        try:
            unfinished.write_bytes(data)
            unfinished.chmod(0o600)
            unfinished.replace(path)
        except OSError as error:
            self.problem = f"{path}: {(error.strerror or 'cannot be written').lower()}"
        else:
            self.problem = ""
