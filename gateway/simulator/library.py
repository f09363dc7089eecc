"""The presets that come with the package, those of a user's own files, and changes to their noise.

Shell: reads the YAML files beside it, and files that are named.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from msgspec.structs import replace

from gateway.simulator.noise import NoiseSpec
from gateway.simulator.presets import Preset, preset_from

_FOLDER: Final = Path(__file__).with_name("presets")


class BadPreset(ValueError):
    """A file that is no preset, or a change to noise that cannot be read; the message says what is wrong."""


def names() -> list[str]:
    """Return the name of every preset that comes with the package."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def load(name: str) -> Preset:
    """Return a preset, by its name or from a file whose name ends in ``.yaml`` or ``.yml``.

    Raises:
        KeyError: for an unknown name.
        BadPreset: for a file that cannot be read.
    """
    if name in names():
        return preset_from(_tree((_FOLDER / f"{name}.yaml").read_text(encoding="utf-8")))
    path = Path(name)
    if path.suffix not in {".yaml", ".yml"}:
        raise KeyError(name)
    try:
        return preset_from(_tree(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise BadPreset(f"{name}: {error}") from error


def with_noise(preset: Preset, changes: Sequence[str]) -> Preset:
    """Return the preset with ``KEY=VALUE`` changes to its noise, values as in YAML; its sources say so.

    Raises:
        BadPreset: for a key that noise does not have, or a value that does not fit it.
    """
    given: dict[str, Any] = {}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals:
            raise BadPreset(f"{change!r} is not KEY=VALUE")
        try:
            given[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise BadPreset(f"{key}: {error}") from error
    if not given:
        return preset
    tree = msgspec.to_builtins(preset.noise) | given
    try:
        noise = msgspec.convert(tree, NoiseSpec)
    except msgspec.ValidationError as error:
        raise BadPreset(str(error)) from error
    told = {f"noise.{key}": "assumed: as it was started" for key in given}
    return replace(preset, noise=noise, sources=preset.sources | told)


def _tree(text: str) -> dict[str, Any]:
    tree = yaml.safe_load(text)
    if not isinstance(tree, dict):
        raise BadPreset("not a preset")
    return tree
