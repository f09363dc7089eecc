"""The randomness of pace: step noise, blocks, starts, cold starts and lasting states.

Pure; the generator is an argument, time too.  All factors multiply a step's time, so 1.05 is 5 % slower.  Figures of
one quiet H200: 0.05 % inside a block, 0.04 % between starts, and once a step of -4.1 % for the rest of a process's
life after a load event.  The RTX boxes publish CVs of 1 to 5 %.
"""

from __future__ import annotations

from math import exp, sqrt
from random import Random

from msgspec import Struct

FADED = 10
"""After so many times ``cold_s`` the cold start is over."""


class StartMode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of several speeds that a start can come up with: step time x ``factor``, with probability ``share``."""

    share: float
    factor: float


class NoiseSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Noise of one deployment.

    ``step_cv``: independent noise of each step, it averages out over an answer.  ``level_cv`` and ``level_phi``: an
    AR(1) on the log of step time with one value every ``level_s`` seconds (about an answer's length), it does not
    average out.  ``start_sigma``: log-normal spread between starts, unless ``modes`` are given.  ``cold_factor``
    fades with ``cold_s``.  After ``load_event_s`` at ``load_event_streams`` or more, with ``state_chance``, a lasting
    step of plus or minus ``state_step``.
    """

    step_cv: float = 0.03
    level_cv: float = 0.0005
    level_phi: float = 0.3
    level_s: float = 6.0
    start_sigma: float = 0.0004
    modes: tuple[StartMode, ...] = ()
    cold_factor: float = 1.0
    cold_s: float = 20.0
    state_chance: float = 0.0
    state_step: float = 0.04
    load_event_s: float = 10.0
    load_event_streams: int = 32


def draw_start(spec: NoiseSpec, rng: Random) -> float:
    """The factor that this start keeps for its life."""
    if not spec.modes:
        return exp(spec.start_sigma * rng.gauss())
    at = rng.random() * sum(mode.share for mode in spec.modes)
    for mode in spec.modes[:-1]:
        at -= mode.share
        if at < 0:
            return mode.factor
    return spec.modes[-1].factor


class PaceNoise:
    """The factor on step time from moment to moment; owner: one engine.  Instants must not go back."""

    __slots__ = (
        "_gauss",
        "_innovation",
        "_level",
        "_level_until",
        "_loaded_since",
        "_rng",
        "_slow",
        "_spec",
        "_started_at",
        "_warm_at",
        "start",
        "state",
    )

    def __init__(self, spec: NoiseSpec, rng: Random, started_at: float) -> None:
        self._spec = spec
        self._rng = rng
        self._gauss = rng.gauss
        self._started_at = started_at
        self._warm_at = started_at + FADED * spec.cold_s if spec.cold_factor != 1.0 else started_at
        self._innovation = spec.level_cv * sqrt(1 - spec.level_phi**2)
        self.start = draw_start(spec, rng)
        self.state = 1.0
        self._level = spec.level_cv * rng.gauss()
        self._level_until = started_at + spec.level_s
        self._loaded_since: float | None = None
        self._slow = self.start * exp(self._level)

    def factor(self, now: float) -> float:
        """The factor on the step that starts at ``now``; its long-run mean over steps is start x state."""
        if now >= self._level_until:
            self._advance(now)
        slow = self._slow
        if now < self._warm_at:
            slow *= self.cold(now)
        jitter = 1.0 + self._spec.step_cv * self._gauss(0.0, 1.0)
        return slow * (jitter if jitter > 0.5 else 0.5)  # noqa: FURB136 - max() costs three times as much, each step

    def cold(self, now: float) -> float:
        """The part of the factor that fades after a start."""
        return 1.0 + (self._spec.cold_factor - 1.0) * exp(-(now - self._started_at) / self._spec.cold_s)

    def note_load(self, streams: int, now: float) -> bool:
        """Tell how many streams run; True when this ended a load event that left a lasting step behind."""
        spec = self._spec
        if streams >= spec.load_event_streams:
            if self._loaded_since is None:
                self._loaded_since = now
            return False
        since, self._loaded_since = self._loaded_since, None
        if since is None or now - since < spec.load_event_s or self._rng.random() >= spec.state_chance:
            return False
        # One step away from normal and one back: states do not pile up.
        if self.state != 1.0:
            self.state = 1.0
        else:
            self.state = 1.0 + (spec.state_step if self._rng.random() < 0.5 else -spec.state_step)
        self._slow = self.start * self.state * exp(self._level)
        return True

    def _advance(self, now: float) -> None:
        spec = self._spec
        missed = int((now - self._level_until) / spec.level_s) + 1
        keep = spec.level_phi**missed
        spread = self._innovation if missed == 1 else spec.level_cv * sqrt(1 - keep * keep)
        self._level = keep * self._level + spread * self._gauss(0.0, 1.0)
        self._level_until += missed * spec.level_s
        self._slow = self.start * self.state * exp(self._level)
