"""Which backend holds a thing that a client may ask for again: the bounded memory of one worker.

Station route.  vLLM keeps stored responses in the process that made them, so a request about one must go there.  What
is forgotten, or was made by way of another worker, is asked for at all backends: this is a shortcut, not the truth.
"""

from __future__ import annotations

from typing import Final

_NOBODY: Final = ("", "")


class OwnerMemory:
    """Id -> name of a backend and the key that made it, the latest ``limit`` of them.  Owner: one worker's pipeline."""

    __slots__ = ("_names", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._names: dict[str, tuple[str, str]] = {}

    def __len__(self) -> int:
        return len(self._names)

    def note(self, thing: str, backend: str, *, key_id: str = "") -> None:
        """``backend`` holds ``thing``, which ``key_id`` had made; the oldest is forgotten when there are too many."""
        self._names.pop(thing, None)
        self._names[thing] = backend, key_id
        while len(self._names) > self.limit:
            del self._names[next(iter(self._names))]

    def owner(self, thing: str) -> str:
        """The name of the backend that holds ``thing``, "" where that is not known."""
        return self._names.get(thing, _NOBODY)[0]

    def maker(self, thing: str) -> str:
        """The id of the key that had ``thing`` made, "" where that is not known."""
        return self._names.get(thing, _NOBODY)[1]
