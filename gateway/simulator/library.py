"""The presets that come with the package: their names, and one by name.

Shell: reads the YAML files beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import yaml

from gateway.simulator.presets import Preset, preset_from

_FOLDER: Final = Path(__file__).with_name("presets")


def names() -> list[str]:
    """Return the name of every preset."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def load(name: str) -> Preset:
    """Return a preset; KeyError for an unknown name."""
    path = _FOLDER / f"{name}.yaml"
    if name not in names():
        raise KeyError(name)
    return preset_from(yaml.safe_load(path.read_text(encoding="utf-8")))
