"""The load: clients that ask again when they are answered, or arrivals by chance; both the same for every policy.

The number of a request decides its length, and with arrivals when it comes. The client counts events and parses
nothing (:mod:`benchmarks.published.streams`): what an answer measured is for the gateway to say.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

from benchmarks.published.streams import Stream, connected, forced

MEDIAN_TOKENS: Final = 200
_SPREAD: Final = 0.6  # of the logarithm
_LEAST_TOKENS, _MOST_TOKENS = 40, 800
_SAMPLED: Final = 20_000


def tokens_of(number: int, *, seed: int) -> int:
    """The length of the answer to request ``number``: lognormal within bounds."""
    drawn = Random(f"{seed}/{number}").lognormvariate(0.0, _SPREAD)
    return round(min(_MOST_TOKENS, max(_LEAST_TOKENS, MEDIAN_TOKENS * drawn)))


def mean_tokens(*, seed: int) -> float:
    """The mean length of an answer."""
    return sum(tokens_of(number, seed=seed) for number in range(_SAMPLED)) / _SAMPLED


class Traffic:
    """Requests to one port until it is told to leave; ``first`` sets its prompts apart from those of other traffics."""

    def __init__(self, port: int, *, model: str, seed: int, first: int) -> None:
        self._port = port
        self._model = model
        self._seed = seed
        self._first = first
        self._number = 0
        self._all: list[Stream] = []

    def _request(self) -> bytes:
        self._number += 1
        tokens = tokens_of(self._number, seed=self._seed)
        return forced(self._model, tokens, number=self._first + self._number)

    async def closed(self, streams: int) -> None:
        """So many streams, each of which asks when it has its answer; until cancelled."""
        self._all = await connected(self._port, streams)
        try:
            async with asyncio.TaskGroup() as group:
                for stream in self._all:
                    group.create_task(self._go_on(stream))
        finally:
            self._leave()

    async def _go_on(self, stream: Stream) -> None:
        while True:
            await stream.ask(self._request())

    async def arriving(self, per_s: float) -> None:
        """Requests that come by chance, so many a second on average, whatever became of the others; until cancelled."""
        idle: list[Stream] = []
        between = Random(f"{self._seed}/arrivals")
        loop = asyncio.get_running_loop()
        at_s = loop.time()
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    at_s += between.expovariate(per_s)
                    await asyncio.sleep(at_s - loop.time())
                    group.create_task(self._ask_once(idle))
        finally:
            self._leave()

    async def _ask_once(self, idle: list[Stream]) -> None:
        request = self._request()
        if not idle:
            [made] = await connected(self._port, 1)
            self._all.append(made)
            idle.append(made)
        stream = idle.pop()
        await stream.ask(request)
        idle.append(stream)

    def _leave(self) -> None:
        for stream in self._all:
            stream.close()
