"""What the demo's help says of presets is what there is."""

from __future__ import annotations

from gateway.cli.preset_names import preset_help
from gateway.simulator import library


def test_the_help_names_every_preset() -> None:
    assert preset_help().partition(": ")[2].rstrip(".").split(", ") == library.names()
