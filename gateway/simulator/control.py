"""The control port of a simulated engine: state and readings out, injections in.  Loopback only.

Shell.  ``GET /state``, ``GET /readings`` (what NVML would say), ``POST /drift``, ``POST /sigterm``.  A real vLLM has
no such port: the gateway must not know of it; scenarios, demos and simulated drivers do.
"""

from __future__ import annotations

from email.utils import formatdate
from typing import Final

import msgspec

from gateway.simulator import card
from gateway.simulator.drift import Drift
from gateway.simulator.launch import Launch, SigtermEnding
from gateway.simulator.process import ServerProcess
from gateway.simulator.shapes import quote
from gateway.simulator.wire import Connection, Request

_JSON: Final = b"application/json"


class _Ending(msgspec.Struct, frozen=True):
    ending: SigtermEnding


class Control:
    """The application behind the control port."""

    keep_alive_s = 5.0

    def __init__(self, process: ServerProcess, launch: Launch) -> None:
        self._process = process
        self._launch = launch

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
        """Answer at once."""
        try:
            body = self._body(request)
        except msgspec.MsgspecError as error:
            connection.respond(400, quote({"error": str(error)}), content_type=_JSON, extra=b"")
            return
        status = 404 if body is None else 200
        connection.respond(status, quote(body or {"error": "no such path"}), content_type=_JSON, extra=b"")

    def _body(self, request: Request) -> dict[str, object] | None:
        match (request.method, request.path):
            case ("GET", "/state"):
                return self._state()
            case ("GET", "/readings"):
                return self._readings()
            case ("POST", "/drift"):
                self._process.inject(msgspec.json.decode(request.body, type=Drift))
                return self._state()
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
        }

    def _readings(self) -> dict[str, object]:
        holders = [
            {"pid": holder.pid, "gpus": holder.gpus, "bytes": holder.bytes_each}
            for holder in card.holders(self._launch.card)
        ]
        return {"simulation": True, "processes": holders}
