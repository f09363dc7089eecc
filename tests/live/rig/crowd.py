"""Many clients at once, and one asynchronous client at a time; all from threads that end here."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Given = TypeVar("Given")
Result = TypeVar("Result")


def at_once(work: Callable[[Given], Result], given: Iterable[Given], *, abreast: int) -> list[Result]:
    """Do the work for each item, `abreast` at a time; results in the order given, the first failure raised."""
    with ThreadPoolExecutor(abreast) as pool:
        return list(pool.map(work, given))


def in_a_loop(talk: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end on an event loop of its own, in a thread that pytest's plugins do not look at."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, talk).result()
