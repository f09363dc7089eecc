"""One start of a simulated engine as values: what is simulated, where it listens, how it behaves at its end.

Plain values between the command and the process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from gateway.simulator.noise import FADED
from gateway.simulator.presets import Preset


class SigtermEnding(StrEnum):
    """What SIGTERM does without --shutdown-timeout: three endings were seen; ``race`` draws one as often as seen."""

    RACE = "race"
    ABORT = "abort"  # open answers end with finish reason abort, the process leaves within half a second
    HANG = "hang"  # the engine is gone, open answers get not a byte and no end until their clients leave
    ERROR = "error"  # open answers end as at the engine's death, the process leaves within half a second


@dataclass(frozen=True, slots=True)
class Launch:
    """``speed`` compresses the engine's time, ``load_speed`` that of loading; ``card`` is the folder of GPU memory.

    ``keeps_card`` False removes the folder at the end, if nobody holds anything and nothing is wrong there.
    ``warm``: the engine begins to serve without the slow first minute of a start.
    """

    preset: Preset
    card: Path
    host: str = "127.0.0.1"
    port: int = 8000
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    speed: float = 1.0
    load_speed: float = 1.0
    control_port: int | None = None
    sigterm: SigtermEnding = SigtermEnding.RACE
    warm: bool = False
    keeps_card: bool = True

    def seed_of(self, start: int) -> str:
        """The seed of start number ``start`` on this card: no two starts, and no two engines, have the same chances."""
        return f"{self.seed}/{self.host}/{self.port}/{start}"

    @property
    def served_since(self) -> float:
        """The virtual instant at which the engine began to serve, where 0 is when it takes its first request.

        ``warm``: so long before that nothing is left of what is slow after a start.
        """
        return -FADED * self.preset.noise.cold_s if self.warm else 0.0
