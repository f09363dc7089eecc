"""What operators may ask of control: the state of everything, and another configuration.

Implements :class:`gateway.ports.Operations` for the admin API and gives the metrics their figures.  Reads fleet and
roster to report; changes pass the loop's inbox like everything else.  A reload is all or nothing: with one fault in the
file the configuration in use stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from gateway.control import inbox
from gateway.control.changes import runtime_changes
from gateway.control.keeper import Keeper
from gateway.control.keysfile import KeysFile
from gateway.control.loop import ControlLoop
from gateway.control.queues import refused_by_reason, with_queues
from gateway.control.summary import summary_of, summary_of_stop
from gateway.errors import ConfigError
from gateway.ports import BackendReport, ConfigVerdict, History, QuarantineReport, StatusReport
from gateway.settings import Settings, load, parse
from gateway.telemetry.eventlog import EventLog
from gateway.telemetry.events import EventName
from gateway.telemetry.figures import Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What does not change while control runs.  ``restart_needed`` names install settings that differ from it."""

    version: str
    started_wall: float
    config_path: Path
    environ: Mapping[str, str]
    restart_needed: Callable[[Settings], tuple[str, ...]]


class ControlOperations:
    """See the module.  Owns only when the configuration in use was read."""

    def __init__(
        self,
        loop: ControlLoop,
        installation: Installation,
        *,
        history: History,
        events: EventLog,
        keeper: Keeper,
        clock: Callable[[], float],
        wall: Callable[[], float],
        log_dropped: Callable[[], int] = lambda: 0,
        keys_file: KeysFile | None = None,
    ) -> None:
        """``keys_file``: that of the clients' keys, where they need one."""
        self._loop = loop
        self._fleet = loop.state.fleet
        self._roster = loop.state.roster
        self._lessons = loop.state.lessons
        self._installation = installation
        self._history = history
        self._events = events
        self._keeper = keeper
        self._clock = clock
        self._wall = wall
        self._log_dropped = log_dropped
        self._keys_file = keys_file
        self._config_loaded_wall = installation.started_wall
        self._reloading = asyncio.Lock()

    # --- reports --------------------------------------------------------------------------------------------------

    def status(self) -> StatusReport:
        """The whole gateway, at once."""
        now, roster = self._clock(), self._roster
        pools = with_queues(self._fleet.pools(), roster.beats(), roster.refusals, now=now)
        clients = self._loop.state.clients
        workers = roster.reports(now=now)
        stop_left_s = None if roster.stop_by is None else max(0.0, roster.stop_by - now)
        problem = self._history.problem()
        return StatusReport(
            summary=summary_of(
                pools, workers, in_flight=roster.holding, store_problem=problem, keys_problem=clients.problem
            )
            if stop_left_s is None
            else summary_of_stop(roster.holding, stop_left_s),
            version=self._installation.version,
            started_wall=self._installation.started_wall,
            config_path=str(self._installation.config_path),
            config_loaded_wall=self._config_loaded_wall,
            generation=self._fleet.snapshot().generation,
            in_flight=self._roster.holding,
            pools=pools,
            workers=workers,
            outcomes=self._roster.requests_by(lambda key: key.outcome),
            store_rows=self._history.rows(),
            store_problem=problem,
            keys=None if clients.keys is None else sum(key.is_good(self._wall()) for key in clients.keys),
            keys_problem=clients.problem,
            refused=refused_by_reason(roster.refusals),
            quarantined=len(self._lessons.poison.quarantined),
            stop_left_s=stop_left_s,
            reloading=self._reloading.locked(),
        )

    def backends(self) -> tuple[BackendReport, ...]:
        """Every backend, in configuration order."""
        now = self._clock()
        reports = self._fleet.reports(
            in_flight=self._roster.in_flight(),
            requests=self._roster.requests_by(lambda key: key.backend),
            now=now,
            wall=self._wall(),
        )
        return tuple(replace(report, curve=self._lessons.curve(report.name)) for report in reports)

    def backend(self, name: str) -> BackendReport | None:
        """One backend, or None."""
        return next((report for report in self.backends() if report.name == name), None)

    def quarantined(self) -> tuple[QuarantineReport, ...]:
        """Requests that are refused, the oldest first."""
        offset_s = self._wall() - self._clock()
        return tuple(
            QuarantineReport(
                fingerprint=it.fingerprint,
                backends=it.backends,
                first_wall=it.first_at + offset_s,
                until_wall=it.until + offset_s,
            )
            for it in self._lessons.poison.quarantined
        )

    def release(self, fingerprint: str) -> bool:
        """Let requests with the fingerprint in again; False when they were not refused."""
        if all(it.fingerprint != fingerprint for it in self._lessons.poison.quarantined):
            return False
        self._loop.post(inbox.QuarantineLifted(fingerprint))
        return True

    def figures(self) -> Figures:
        """Everything for one scrape of the metrics."""
        return Figures(
            status=self.status(),
            backends=self.backends(),
            outcomes=self._roster.totals,
            silent_s=self._roster.silent_s(now=self._clock()),
            dropped=self._roster.dropped,
            tap_failures=self._roster.tap_failures,
            log_dropped=self._log_dropped(),
            refusals=self._roster.refusals,
        )

    # --- configuration --------------------------------------------------------------------------------------------

    async def reload(self) -> ConfigVerdict:
        """Read the configuration file again and apply its runtime part, all or nothing; returns when applied."""
        async with self._reloading:
            path = self._installation.config_path
            try:
                text, settings = await asyncio.to_thread(read_config, path, self._installation.environ)
            except ConfigError as error:
                faults = tuple(error.message.splitlines())
                self._events.emit(EventName.CONFIG_REFUSED, config_path=str(path), faults=faults)
                return ConfigVerdict(applied=False, faults=faults)
            verdict = self._verdict(settings, applied=True)
            self._loop.post(inbox.ConfigRead(settings.runtime))
            if self._keys_file is not None:
                await self._keys_file.reload()
            self._keeper.keep_config(text)
            await self._keeper.written()  # so that a control that dies now comes back with this configuration
            self._config_loaded_wall = self._wall()
            self._events.emit(
                EventName.CONFIG_LOADED,
                config_path=str(path),
                changes=verdict.changes,
                needs_restart=verdict.needs_restart,
            )
            return verdict

    async def check(self, text: str | None) -> ConfigVerdict:
        """Validate ``text`` (None: the configured file) without applying anything."""
        try:
            settings = await asyncio.to_thread(self._parse, text)
        except ConfigError as error:
            return ConfigVerdict(applied=False, faults=tuple(error.message.splitlines()))
        return self._verdict(settings, applied=False)

    def _verdict(self, settings: Settings, *, applied: bool) -> ConfigVerdict:
        return ConfigVerdict(
            applied=applied,
            changes=runtime_changes(self._fleet.runtime, settings.runtime),
            needs_restart=self._installation.restart_needed(settings),
        )

    def _parse(self, text: str | None) -> Settings:
        if text is None:
            return load(self._installation.config_path, environ=self._installation.environ)
        return parse(text, str(self._installation.config_path), environ=self._installation.environ)


def read_config(path: Path, environ: Mapping[str, str]) -> tuple[str, Settings]:
    """The text of the configuration file and what it means.  Raises ConfigError."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return "", load(path, environ=environ)  # it says what is wrong, and where
    return text, parse(text, str(path), environ=environ)
