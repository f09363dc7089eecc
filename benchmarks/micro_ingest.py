"""What a settled request costs control, in microseconds of CPU for each record: part by part, and all together.

Control as it is built: a worker's frame is decoded, the record passes health, history, metrics, log and live feed; log
and history have threads of their own, the log ends in /dev/null.  A part is what it takes of the loop's thread, "whole"
the CPU of the process with all its threads while records come at a rate.  Records are as full as vLLM with
`--enable-per-request-metrics` makes them.  Run it alone: `python -m benchmarks.micro_ingest`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop

from gateway.control import inbox
from gateway.control.ingest import Ingest
from gateway.control.keeper import Keeper
from gateway.control.keepsake import Keepsake
from gateway.control.link import WorkerRef
from gateway.control.loop import ControlLoop, Tools
from gateway.control.roster import Roster
from gateway.control.state import ControlState
from gateway.core.admission.shares import ShareBook
from gateway.core.link.framing import frame, worker_messages
from gateway.core.link.messages import RequestRecord, Settled
from gateway.core.stream.summary import Ending, EngineMetrics, Exactness, Outcome, StreamSummary
from gateway.fleet import Fleet
from gateway.settings import parse
from gateway.store.history import SqliteHistory
from gateway.store.policy import StorePolicy
from gateway.telemetry.bus import Bus
from gateway.telemetry.eventlog import EventLog
from gateway.telemetry.logs import make_log, open_writer
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.writer import LogWriter

WORKER = WorkerRef(session=1, slot=0, pid=1, started_wall=0.0)
MODELS = ("kimi-k2.5", "qwen3-8b")
BACKENDS = ("a", "b", "c", "d")
SETTINGS = """
pools:
  - {name: kimi, backends: [{name: a, url: "http://127.0.0.1:1"}, {name: b, url: "http://127.0.0.1:2"}]}
  - {name: qwen, backends: [{name: c, url: "http://127.0.0.1:3"}, {name: d, url: "http://127.0.0.1:4"}]}
"""


def settled_record(number: int) -> RequestRecord:
    """A streamed chat answer that thought; every number of it differs a little from the last one's."""
    shift = number % 101 / 1000.0
    return RequestRecord(
        request_id=f"req-{number:032x}",
        slot=0,
        accepted_wall=1_790_000_000.0 + number * 0.013717,
        endpoint="chat",
        method="POST",
        status=200,
        outcome=Outcome.OK,
        ending=Ending.COMPLETE,
        stream=True,
        model=MODELS[number % 2],
        pool="kimi",
        backend=BACKENDS[number % 4],
        profile="stock",
        attempts=1,
        injected=True,
        request_bytes=4211 + number % 1000,
        response_bytes=123_456 + number % 1000,
        queue_s=0.0000123,
        upload_s=0.00013123 + shift / 1000,
        sent_s=0.00045212,
        headers_s=0.00312345,
        ttft_s=0.1031234567 + shift,
        ttfv_s=3.31234567 + shift,
        last_token_s=6.4812345678 + shift,
        total_s=6.50123456 + number % 7919 / 500.0,
        gateway_s=0.0004123456,
        hold_max_s=0.0000312345,
        summary=settled_summary(shift),
    )


def settled_summary(shift: float) -> StreamSummary:
    """What was measured of such an answer."""
    return StreamSummary(
        first_event=12345.123456,
        first_token=12345.2234567,
        first_visible=12348.4321 + shift,
        last_token=12351.7654321 + shift,
        window_start=12345.1234567,
        window_end=12351.7654321 + shift,
        silence_s=0.00012345,
        events=514,
        chunks=512,
        choices=1,
        prompt_tokens=1234,
        cached_tokens=1024,
        completion_tokens=512,
        reasoning_tokens=256,
        content_tokens=256,
        total_exactness=Exactness.EXACT,
        split_exactness=Exactness.EXACT,
        decode_tps=79.8123456 + shift,
        reasoning_tps=80.234567 + shift,
        visible_tps=79.345678 + shift,
        effective_visible_tps=39.987654 + shift,
        step_time_s=0.01253212,
        reasoning_share=0.5,
        gap_p50_s=0.012512,
        gap_p99_s=0.0193212,
        gap_max_s=0.0451234 + shift,
        finish_reasons=("stop",),
        done_marker=True,
        terminal=True,
        engine=EngineMetrics(
            time_to_first_token_ms=99.12345 + shift,
            generation_time_ms=6401.1234567 + shift,
            queue_time_ms=0.123456,
            mean_itl_ms=12.53212,
            tokens_per_second=78.7654321,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """The parts of a control process that a record passes."""

    history: SqliteHistory
    metrics: Metrics
    events: EventLog
    writer: LogWriter
    loop: ControlLoop


@asynccontextmanager
async def control_in(folder: Path) -> AsyncIterator[Control]:
    """Control over four backends, with its log in /dev/null and its history in ``folder``."""
    settings = parse(SETTINGS, "benchmark.yaml", environ={}, look_at_host=False)
    sink = os.open(os.devnull, os.O_WRONLY)
    writer = open_writer(sink, format="json")
    metrics = Metrics()
    metrics.models.allow(MODELS)
    metrics.backends.allow(BACKENDS)
    events = EventLog(make_log(writer, format="json", level="info"), Bus())
    history = SqliteHistory(StorePolicy(path=folder / "history.db", keep_days=36_500.0), on_event=_trouble)
    tools = Tools(
        ingest=Ingest(history=history, metrics=metrics, events=events),
        events=events,
        metrics=metrics,
        keeper=Keeper(Keepsake(folder), on_problem=_trouble),
        environ={},
        clock=time.monotonic,
    )
    fleet = Fleet(settings.runtime, generation=0, now=time.monotonic())
    shares = ShareBook(workers=1, inherited=False, now=time.monotonic())
    state = ControlState(fleet, Roster(models=metrics.models, backends=metrics.backends, shares=shares))
    await history.start()
    try:
        yield Control(history=history, metrics=metrics, events=events, writer=writer, loop=ControlLoop(state, tools))
    finally:
        await history.close()
        writer.close()
        os.close(sink)


def _trouble(event: object) -> None:
    raise SystemExit(f"control is in trouble, and the figures would mean nothing: {event}")


async def part_us(work: Callable[[int], object], batches: int, *, records: int) -> float:
    """CPU of this thread that ``work(number of a batch)`` takes for each record.

    The log's thread gets its turn between two batches, so that it does not take the processor within one.
    """
    spent = 0.0
    for number in range(batches):
        began = time.thread_time()
        work(number)
        spent += time.thread_time() - began
        await asyncio.sleep(0.001)
    return spent / records * 1e6


async def parts_us(control: Control, frames: Sequence[bytes], *, records: int) -> dict[str, float]:
    """What each part takes of the loop's thread."""
    framer = worker_messages()
    settled = [message for one in frames for message in framer.feed(one) if isinstance(message, Settled)]
    parts: dict[str, Callable[[int], object]] = {
        "decode the frame": lambda number: framer.feed(frames[number]),
        "health": lambda number: control.loop.state.step(inbox.WorkerSaid(WORKER, settled[number]), now=0.0),
        "metrics": lambda number: control.metrics.settled(settled[number].records),
        "log and live feed": lambda number: control.events.settled(settled[number].records),
        "history, its queue": lambda number: control.history.add(settled[number].records),
    }
    return {name: await part_us(work, len(frames), records=records) for name, work in parts.items()}


async def whole_us(control: Control, frames: Sequence[bytes], *, records: int, rate: float) -> dict[str, float]:
    """CPU for each record while ``rate`` of them come each second."""
    framer = worker_messages()
    due_s = records / len(frames) / rate
    rows_wanted = await _all_written(control) + records
    began_at, began, began_here = time.monotonic(), time.process_time(), time.thread_time()
    for number, one in enumerate(frames, start=1):
        for message in framer.feed(one):
            control.loop.worker_said(WORKER, message)
        await asyncio.sleep(max(0.0, began_at + number * due_s - time.monotonic()))
    here = time.thread_time() - began_here
    if await _all_written(control) != rows_wanted:
        _trouble("rows were lost")
    spent = time.process_time() - began
    if control.writer.dropped or control.history.dropped():
        _trouble("lines or rows were dropped")
    return {"whole, the loop's thread": here / records * 1e6, "whole, every thread": spent / records * 1e6}


async def _all_written(control: Control) -> int:
    """How many rows the history has once all that it was given is written: an answer knows everything before it."""
    await control.history.get("none such")
    return control.history.rows()


async def measure(*, records: int, batch: int, rate: float, repeats: int) -> dict[str, list[float]]:
    """Every figure ``repeats`` times, each time with other request ids."""
    figures: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="micro-ingest-") as folder:
        async with control_in(Path(folder)) as control:
            for repeat in range(repeats):
                made = [settled_record(repeat * records + number) for number in range(records)]
                frames = [frame(Settled(slot=0, records=made[at : at + batch])) for at in range(0, records, batch)]
                found = await parts_us(control, frames, records=records)
                found |= await whole_us(control, frames, records=records, rate=rate)
                for name, value in found.items():
                    figures.setdefault(name, []).append(value)
    return figures


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="CPU that control spends on each settled request.")
    parser.add_argument("--records", type=int, default=5000, help="records of one repeat (default 5000)")
    parser.add_argument("--batch", type=int, default=50, help="records in one message of a worker (default 50)")
    parser.add_argument("--rate", type=float, default=1000.0, help="records a second, where all is measured (1000)")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    figures = uvloop.run(
        measure(records=options.records, batch=options.batch, rate=options.rate, repeats=options.repeats)
    )
    print(f"{'us of CPU per record':30} {'median':>8} {'least':>8} {'most':>8}")
    for name, values in figures.items():
        print(f"{name:30} {statistics.median(values):8.1f} {min(values):8.1f} {max(values):8.1f}")


if __name__ == "__main__":
    main()
