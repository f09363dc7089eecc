"""Whole numbers as vLLM reads some of its arguments: ``32k`` is 32,000, ``32K`` is 32,768, ``25.6k`` is 25,600.

Pure.  Only the decimal suffixes may follow a fraction, as there.
"""

from __future__ import annotations

import re
from typing import Final

_SUFFIXES: Final = "kmgt"
_SHAPE: Final = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])", re.ASCII)


def human_int(text: str) -> int:
    """Return the number; ValueError for what is none."""
    found = _SHAPE.fullmatch(text.strip())
    if found is None:
        return int(text)
    number, suffix = found.groups()
    power = 1 + _SUFFIXES.index(suffix.lower())
    if suffix.islower():
        return int(float(number) * 10.0 ** (3 * power))
    if "." in number:
        raise ValueError(
            f"Decimals are not allowed with binary suffixes like {suffix}. "
            f"Did you mean to use {number}{suffix.lower()} instead?"
        )
    return int(number) << 10 * power
