"""What the demo's help says of presets is what there is."""

from __future__ import annotations

from gateway.cli.demo import PRESETS
from gateway.simulator import library


def test_the_help_names_every_preset() -> None:
    assert PRESETS.split(", ") == library.names()
