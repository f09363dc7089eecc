"""Random-looking ids, from a seed: the same start gives the same ids.

Pure but for its own generator.
"""

from __future__ import annotations

from random import Random


class Ids:
    """Owner of the generator."""

    def __init__(self, seed: str) -> None:
        self._random = Random(f"ids/{seed}")  # noqa: S311 - names, no secrets

    def hexes(self, digits: int) -> str:
        """Return so many hexadecimal digits."""
        return f"{self._random.getrandbits(4 * digits):0{digits}x}"
