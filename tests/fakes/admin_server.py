"""An operators' listener with canned answers: what the command line sees of a gateway, over TCP or a Unix socket."""

from __future__ import annotations

import contextlib
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from gateway.core.link.messages import RequestRecord
from gateway.core.routing.adapters import AdapterOutcome, AdapterReport
from gateway.core.routing.backend import BackendState
from gateway.core.routing.curve import CurvePoint
from gateway.core.stream.summary import Ending, EngineMetrics, Exactness, Flag, Outcome, StreamSummary
from gateway.ports import BackendReport, PoolReport, StatusReport, StoredRequest, WorkerReport

TOKEN = "t0k3n-of-the-fake-gateway-abcdefghijklmnop"


class FakeGateway:
    """Canned reports; ``seen`` are the requests that came (path, query, headers)."""

    def __init__(self, now: float) -> None:
        self.seen: list[tuple[str, dict[str, str], dict[str, str]]] = []
        self.bodies: list[bytes] = []
        self.methods: list[str] = []
        self.status = status_report(now)
        self.backends = backend_reports(now)
        self.requests = request_rows(now)
        self.adapters: tuple[AdapterReport, ...] = ()
        self.order: tuple[int, AdapterOutcome | None] = (502, None)
        self.raw: tuple[int, bytes] | None = None
        """When set, every request gets this status and body."""

    def answer(self, path: str, query: dict[str, str]) -> tuple[int, bytes]:
        """Status and body for an authorised request."""
        match [unquote(part) for part in path.removeprefix("/admin/v1/").split("/")]:
            case ["status"]:
                return 200, msgspec.json.encode(self.status)
            case ["backends"]:
                return 200, msgspec.json.encode({"items": self.backends, "next": None})
            case ["backends", name]:
                return one(next((item for item in self.backends if item.name == name), None), f"no backend {name}")
            case ["requests"]:
                rows = self.requests[: int(query.get("limit", "50"))]
                rest = rows[-1].id if len(rows) < len(self.requests) else None
                return 200, msgspec.json.encode({"items": rows, "next": rest})
            case ["requests", wanted]:
                found = next((row for row in self.requests if row.record.request_id == wanted), None)
                return one(found, f"no request {wanted}")
            case ["lora"]:
                return 200, msgspec.json.encode({"items": self.adapters, "next": None})
            case ["lora", _, _, "load" | "unload"]:
                return self.order[0], msgspec.json.encode(self.order[1])
            case _:
                return failure(404, "not_found", "no such page")


def one(report: Any, otherwise: str) -> tuple[int, bytes]:
    return failure(404, "not_found", otherwise) if report is None else (200, msgspec.json.encode(report))


def failure(status: int, code: str, message: str) -> tuple[int, bytes]:
    detail = {"message": message, "type": "x", "param": None, "code": code}
    return status, msgspec.json.encode({"error": detail})


class _Handler(BaseHTTPRequestHandler):
    gateway: FakeGateway

    def do_POST(self) -> None:
        self.gateway.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.do_GET()

    def do_DELETE(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.gateway.methods.append(self.command)
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        self.gateway.seen.append((parts.path, query, dict(self.headers)))
        if self.gateway.raw is not None:
            status, body = self.gateway.raw
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            status, body = failure(401, "not_authenticated", "this takes a token")
        else:
            status, body = self.gateway.answer(parts.path, query)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "fake"

    def log_message(self, *_: Any) -> None:
        """Quiet."""


class _Tcp(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


class _Unix(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


@contextlib.contextmanager
def serving(gateway: FakeGateway, *, socket_path: Path | None = None) -> Iterator[str]:
    """Serve ``gateway`` on a free port of the loopback, or on ``socket_path``; yields the URL."""
    handler = type("Handler", (_Handler,), {"gateway": gateway})
    server: socketserver.BaseServer
    if socket_path is not None:
        server, url = _Unix(str(socket_path), handler), f"unix:{socket_path}"
    else:
        server = _Tcp(("127.0.0.1", 0), handler)
        url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield url
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def status_report(now: float) -> StatusReport:
    """Two pools, one of them short; two workers, one of them silent."""
    return StatusReport(
        summary="2 of 3 backends serve, 5 requests in flight; c is ejected.",
        version="0.1.0",
        started_wall=now - 11_520,
        config_path="/etc/pacekeeper/gateway.yaml",
        config_loaded_wall=now - 190,
        generation=12,
        in_flight=5,
        pools=(
            PoolReport(
                name="kimi",
                models=("kimi-k2.5",),
                serving=2,
                backends=2,
                min_available=1,
                waiting=4,
                longest_wait_s=7.9,
                refused=1_021,
            ),
            PoolReport(name="small", models=(), serving=0, backends=1, min_available=1),
        ),
        workers=(
            WorkerReport(
                slot=0,
                pid=4711,
                started_wall=now - 11_519,
                generation=12,
                in_flight=3,
                connections=17,
                dropped=0,
                fresh=True,
            ),
            WorkerReport(
                slot=1,
                pid=4712,
                started_wall=now - 44,
                generation=11,
                in_flight=2,
                connections=9,
                dropped=3,
                fresh=False,
            ),
        ),
        outcomes={"ok": 12_345, "client_gone": 17, "upstream_error": 2, "rejected": 0},
        store_rows=12_364,
        store_problem="",
        refused={"queue_full": 21, "tokens_per_minute": 1_000, "quarantined": 0},
        quarantined=1,
    )


def backend_reports(now: float) -> tuple[BackendReport, ...]:
    """Two that serve and one that is ejected."""
    return (
        backend_report("a", now=now, url="http://127.0.0.1:8001", in_flight=3, tps=231.4),
        backend_report("b", now=now, url="https://vllm.internal.example:8443", in_flight=2, tps=98.0),
        backend_report(
            "c",
            now=now,
            pool="small",
            url="unix:/run/vllm/engine.sock",
            state=BackendState.EJECTED,
            reason="ejected: connection refused, 3 times in a row",
        ),
    )


def backend_report(
    name: str,
    *,
    now: float,
    url: str,
    pool: str = "kimi",
    state: BackendState = BackendState.SERVING,
    reason: str = "",
    in_flight: int = 0,
    tps: float | None = None,
) -> BackendReport:
    known = tps is not None
    curve = (CurvePoint(streams=1.0, tps=80.25), CurvePoint(streams=3.4641, tps=61.0)) if known else ()
    return BackendReport(
        name=name,
        pool=pool,
        url=url,
        driver="static",
        state=state,
        reason=reason,
        since_wall=now - 3_700,
        models=("kimi-k2.5",) if known else (),
        profile="",
        version="0.11.0" if known else "",
        in_flight=in_flight,
        engine_running=float(in_flight) if known else None,
        engine_waiting=0.0 if known else None,
        generation_tokens=1_234_567.0 if known else None,
        generation_tps=tps,
        last_probe_wall=now - 1,
        requests_total=8_123,
        curve=curve,
    )


def request_rows(now: float) -> tuple[StoredRequest, ...]:
    """Of each kind one, newest first."""
    records = (
        thinking_record(now - 3, "3f2a9c01b2d400000007"),
        thinking_record(now - 65, "3f2a9c01b2d400000006", model="moonshotai/Kimi-K2.5-Instruct-0905"),
        record(now - 75, "9d02c0ffee1100000005", outcome=Outcome.CLIENT_GONE, ending=Ending.CLIENT_GONE, total_s=1.5),
        record(
            now - 700,
            "9d02c0ffee1100000004",
            outcome=Outcome.UPSTREAM_TIMEOUT,
            ending=Ending.STALL_TIMEOUT,
            status=504,
            sent_s=0.003,
            total_s=612.3,
            error_code="backend_stalled",
        ),
        record(
            now - 90_000,
            "client-chosen-id",
            outcome=Outcome.REJECTED,
            ending=Ending.REJECTED,
            status=404,
            total_s=0.001,
        ),
    )
    return tuple(StoredRequest(id=100 - at, record=item) for at, item in enumerate(records))


def record(accepted_wall: float, request_id: str, **more: Any) -> RequestRecord:
    """A request of which little is known, with ``more`` fields."""
    fields: dict[str, Any] = {
        "slot": 0,
        "endpoint": "chat",
        "method": "POST",
        "status": 200,
        "outcome": Outcome.OK,
        "ending": Ending.COMPLETE,
        "stream": True,
        "model": "kimi-k2.5",
        "pool": "kimi",
        "backend": "a",
        "attempts": 1,
        "total_s": 1.0,
    }
    return RequestRecord(request_id=request_id, accepted_wall=accepted_wall, **(fields | more))


def thinking_record(accepted_wall: float, request_id: str, **more: Any) -> RequestRecord:
    """A stream of 512 tokens at 80 tok/s, half of them reasoning."""
    summary = StreamSummary(
        events=515,
        chunks=512,
        choices=1,
        prompt_tokens=123,
        cached_tokens=100,
        completion_tokens=512,
        reasoning_tokens=256,
        content_tokens=256,
        total_exactness=Exactness.EXACT,
        split_exactness=Exactness.ESTIMATED,
        decode_tps=80.1,
        reasoning_tps=80.0,
        visible_tps=80.2,
        effective_visible_tps=40.0,
        reasoning_share=0.5,
        gap_p50_s=0.0124,
        gap_p99_s=0.0142,
        gap_max_s=0.0311,
        finish_reasons=("stop",),
        done_marker=True,
        terminal=True,
        engine=EngineMetrics(mean_itl_ms=12.48, queue_time_ms=0.4),
        flags=(Flag.ESTIMATED_SPLIT,),
    )
    times = {
        "queue_s": 0.0004,
        "upload_s": 0.0002,
        "sent_s": 0.0021,
        "headers_s": 0.0094,
        "ttft_s": 0.412,
        "ttfv_s": 3.604,
        "last_token_s": 6.801,
        "total_s": 6.815,
        "gateway_s": 0.0011,
        "hold_max_s": 0.0002,
        "request_bytes": 1_834,
        "response_bytes": 151_200,
        "alone": True,
        "summary": summary,
    }
    return record(accepted_wall, request_id, **(times | more))
