"""The presets of the simulator in a help text.

Reads their files' names and nothing more: short commands start fast, and must not load the simulator for their help.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parents[1] / "simulator" / "presets"


def preset_help() -> str:
    """Return what ``--preset`` takes."""
    return f"Which deployment to simulate: {', '.join(sorted(path.stem for path in _FOLDER.glob('*.yaml')))}."
