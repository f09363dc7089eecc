"""The control port of a simulated engine: state and readings out, injections in.  Loopback only.

Shell.  ``GET /state``, ``GET /readings`` (what NVML would say), ``POST /drift``, ``/xid``, ``/wedge`` (memory that
nobody holds any more), ``/readings/noise``, ``/mend`` (the box as new), ``/sigterm``.  A real vLLM has no such port:
the gateway must not know of it; scenarios, demos and simulated drivers do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Final

import msgspec

from gateway.simulator.drift import Drift
from gateway.simulator.gpu import BoxRecord, GpuHost, Work
from gateway.simulator.launch import Launch, SigtermEnding
from gateway.simulator.physics import payload_bytes
from gateway.simulator.process import ServerProcess
from gateway.simulator.reading_noise import Monitor, ReadingNoise
from gateway.simulator.shapes import quote
from gateway.simulator.wire import Connection, Request

_JSON: Final = b"application/json"
_LONG_PREFILL_TOKENS: Final = 1024  # so many still to compute keep a card busy for tens of milliseconds


class _Ending(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ending: SigtermEnding


class _Xid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    code: int
    gpu: int = 0


class _Wedge(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    bytes: int
    gpu: int = 0


class Control:
    """The application behind the control port."""

    keep_alive_s = 5.0

    def __init__(self, process: ServerProcess, launch: Launch) -> None:
        self._process = process
        self._launch = launch
        self._monitor = Monitor(seed=launch.seed)

    def date(self) -> bytes:
        """Return the Date header's value."""
        return formatdate(usegmt=True).encode()

    def connected(self, connection: Connection) -> None:
        """Nothing is kept of a connection."""

    def gone(self, connection: Connection) -> None:
        """Nothing is kept of a connection."""

    def writable(self, connection: Connection) -> None:
        """Answers are small."""

    def answer(self, connection: Connection, request: Request) -> None:
        """Answer at once: 400 in words for what cannot be, 500 for what failed here."""
        status, body = self._told(request)
        connection.respond(status, quote(body), content_type=_JSON, extra=b"")

    def _told(self, request: Request) -> tuple[int, dict[str, object]]:
        try:
            body = self._body(request)
        except ValueError as error:  # msgspec's are as well
            return 400, {"error": str(error)}
        except Exception as error:  # noqa: BLE001 - the root of what a client causes: it is told, and the engine lives on
            return 500, {"error": repr(error)}
        return (404, {"error": "no such path"}) if body is None else (200, body)

    def _body(self, request: Request) -> dict[str, object] | None:
        match (request.method, request.path):
            case ("GET", "/state"):
                return self._state()
            case ("GET", "/readings"):
                return self._readings()
            case ("POST", "/drift"):
                self._process.injector.inject(msgspec.json.decode(request.body, type=Drift))
                return self._state()
            case ("POST", "/xid" | "/wedge" | "/readings/noise" | "/mend"):
                self._process.injector.change(_change_of(request))
                return self._readings()
            case ("POST", "/sigterm"):
                self._process.sigterm = msgspec.json.decode(request.body, type=_Ending).ending
                return self._state()
            case _:
                return None

    def _state(self) -> dict[str, object]:
        process = self._process
        return {
            "simulation": True,
            "preset": self._launch.preset.name,
            "phase": process.phase,
            "sigterm": process.sigterm,
            "core_pid": process.core_pid,
            "drifts": process.engine.pacer.drifts.active(),
        }

    def _readings(self) -> dict[str, object]:
        """What NVML and the kernel would say of the box, as far as they can be read."""
        engine, host = self._process.engine, self._process.card.host()
        drifts, now = engine.pacer.drifts, time.time()
        work = Work(
            streams=engine.counters().running,
            prefilling=engine.prompt_tokens_left() >= _LONG_PREFILL_TOKENS,
            spinning=engine.hung or self._process.is_stuck,
        )
        gpus = []
        for gpu in range(self._launch.preset.box.gpus):
            mine = work if gpu < engine.preset.box.gpus else Work(streams=0)
            reading = host.reading(gpu, mine, drifts=drifts)
            gpus.append(self._monitor.look(f"gpu{gpu}", reading, noise=host.noise, now=now).shown())
        allreduce_s = engine.allreduce.seconds(payload_bytes(engine.preset, 1))
        around = host.host_reading(allreduce_s=allreduce_s, drifts=drifts)
        told = self._monitor.look("host", around, noise=host.noise, now=now).shown()
        return {"simulation": True, "gpus": gpus, "host": told, "xids": host.xids, "noise": host.noise}


def _change_of(request: Request) -> Callable[[GpuHost], None]:
    """What a request does to the box; raises MsgspecError for one that cannot be read."""
    match request.path:
        case "/xid":
            xid = msgspec.json.decode(request.body, type=_Xid)
            return lambda host: host.xid(xid.code, gpu=xid.gpu, now=time.time())
        case "/wedge":
            wedge = msgspec.json.decode(request.body, type=_Wedge)
            return lambda host: host.wedge(wedge.gpu, wedge.bytes)
        case "/readings/noise":
            noise = msgspec.json.decode(request.body, type=ReadingNoise)
            return lambda host: setattr(host, "noise", noise)
        case _:
            return lambda host: host.restore(BoxRecord())
