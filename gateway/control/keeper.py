"""Writes the keepsake from a thread of its own, so that a disk that hangs never holds control up.

One write at a time, and of each file only the newest that was handed over: what was overtaken is never written.  Told
what goes wrong by a callback on the loop.  Must not decide what is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial

from gateway.control.keepsake import ADAPTERS_NAME, CONFIG_NAME, FLEET_NAME, KEYS_NAME, Keepsake
from gateway.core.routing.adapters import Orders
from gateway.fleet import Remembered


class Keeper:
    """Owns the thread, which begins with the first write.  Made and used on the event loop."""

    def __init__(self, keepsake: Keepsake, *, on_problem: Callable[[str], None]) -> None:
        """``on_problem(sentence)`` is called on the loop whenever that changed; "" when all is well again."""
        self._keepsake = keepsake
        self._on_problem = on_problem
        self._problem = ""
        self._loop = asyncio.get_running_loop()
        self._changed = threading.Condition()
        self._waiting: dict[str, Callable[[], None]] = {}
        self._writing = False
        self._closing = False
        self._thread: threading.Thread | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    def keep_fleet(self, generation: int, backends: tuple[Remembered, ...]) -> None:
        """Remember the snapshot that was just published; returns at once."""
        self._hand_over(FLEET_NAME, partial(self._keepsake.keep_fleet, generation, backends))

    def keep_config(self, text: str) -> None:
        """Remember ``text`` as the configuration in use; returns at once."""
        self._hand_over(CONFIG_NAME, partial(self._keepsake.keep_config, text))

    def keep_keys(self, text: bytes) -> None:
        """Remember ``text`` as the clients' keys in use; returns at once."""
        self._hand_over(KEYS_NAME, partial(self._keepsake.keep_keys, text))

    def keep_adapters(self, orders: Orders) -> None:
        """Remember what operators ordered of LoRA adapters; returns at once."""
        self._hand_over(ADAPTERS_NAME, partial(self._keepsake.keep_adapters, orders))

    async def written(self, *, timeout_s: float = 1.0) -> bool:
        """Whether all that was handed over is on the disk, or could not be written; waits at most ``timeout_s``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        return self._idle.is_set()

    async def close(self, *, timeout_s: float = 1.0) -> None:
        """Write what waits, at most ``timeout_s``; the thread ends with its last write, whenever that comes back."""
        await self.written(timeout_s=timeout_s)
        with self._changed:
            self._closing = True
            self._changed.notify()

    def _hand_over(self, name: str, write: Callable[[], None]) -> None:
        self._idle.clear()
        with self._changed:
            self._waiting[name] = write
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="keepsake", daemon=True)
            self._thread.start()

    # --- on the thread --------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (write := self._next()) is not None:
            problem = _tried(write, self._keepsake)
            with self._changed:
                self._writing = False
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile: nobody is left to be told
                self._loop.call_soon_threadsafe(self._wrote, problem)

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            while not self._waiting:
                if self._closing:
                    return None
                self._changed.wait()
            self._writing = True
            return self._waiting.pop(next(iter(self._waiting)))

    # --- on the loop again ----------------------------------------------------------------------------------------

    def _wrote(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            self._on_problem(problem)
        with self._changed:
            idle = not self._waiting and not self._writing
        if idle:
            self._idle.set()


def _tried(write: Callable[[], None], keepsake: Keepsake) -> str:
    try:
        write()
    except Exception as error:  # noqa: BLE001 - root of the thread: a defect in one write must not end all later ones
        return f"a defect: {type(error).__name__}"
    return keepsake.problem
