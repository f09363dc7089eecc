"""The engines that a run's tests share, and the run's folder.

They are kept with pytest's configuration, so that the live tests and the conformance suite find the same ones.
Engines are slow to start, so each is started only when somebody asks for it, and all of them end with the run.
"""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.live.rig.engine import FEW_SEATS, Engine
from tests.live.rig.gateway import ROOT

_FLEET = pytest.StashKey["Fleet"]()


class Fleet:
    """Owner of the shared engines and of the folder where a run keeps its logs and stores, emptied at the start."""

    def __init__(self) -> None:
        self.folder = Path(os.environ.get("LIVE_FOLDER") or ROOT / ".live/run")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.engines = {
            "engine_a": Engine("a", self.folder, "--enable-per-request-metrics"),
            "engine_b": Engine("b", self.folder, "--enable-per-request-metrics", "--max-num-seqs", str(FEW_SEATS)),
        }

    def start(self, names: Iterable[str]) -> None:
        """Start those of these engines that were never started; returns at once."""
        for name in names:
            if not self.engines[name].is_started:
                self.engines[name].start()

    def end(self) -> None:
        """End all of them."""
        for engine in self.engines.values():
            engine.end()


def fleet_of(config: pytest.Config) -> Fleet:
    """The run's fleet, made when first asked for and ended with the run."""
    if _FLEET not in config.stash:
        fleet = config.stash[_FLEET] = Fleet()
        config.add_cleanup(fleet.end)
    return config.stash[_FLEET]
