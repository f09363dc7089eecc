"""Task helpers: the only place that makes bare asyncio tasks.

Not a station.  Everything else uses ``asyncio.TaskGroup`` or :func:`spawn`, so that each task has a name, is held
by somebody and cannot lose its exception.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Nursery:
    """Holds background tasks of one owner; a task that fails is reported once, all are ended by :meth:`close`."""

    def __init__(self, on_failure: Callable[[str, BaseException], None]) -> None:
        """``on_failure(task name, exception)`` is called once for each task that ends with an exception."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._on_failure = on_failure

    def spawn(self, coroutine: Coroutine[Any, Any, Any], *, name: str) -> None:
        """Start ``coroutine`` as a named task that lives until it ends or the nursery closes."""
        task = spawn(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(task.get_name(), error)

    async def close(self, *, timeout_s: float = 5.0) -> None:
        """Cancel every task and wait for them, at most ``timeout_s``."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)


def spawn(coroutine: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
    """Start a named task; the caller must keep the reference and await or cancel it."""
    return asyncio.get_running_loop().create_task(coroutine, name=name)


async def every(period_s: float, tick: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Await ``tick()`` every ``period_s`` seconds, the first time at once; slow ticks shift the next one."""
    loop = asyncio.get_running_loop()
    while True:
        started = loop.time()
        await tick()
        await asyncio.sleep(max(0.0, started + period_s - loop.time()))
