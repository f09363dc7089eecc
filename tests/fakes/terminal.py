"""A stream that says it is a terminal of UTF-8 with 16 colours, and remembers what was written."""

from __future__ import annotations

import io
import re

import pytest


class Terminal(io.StringIO):
    """Stands for standard output; the environment is set so that the machine of the test does not matter."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLORTERM"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("TERM", "xterm")

    @property
    def text(self) -> str:
        """What a person sees: without the sequences that set colours."""
        return re.sub(r"\x1b\[[0-9;]*m", "", self.getvalue())

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "UTF-8"

    def isatty(self) -> bool:
        return True
