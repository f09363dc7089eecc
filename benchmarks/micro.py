"""The parts of the hot path by themselves, in CPU microseconds: tap, framing, admission, and the end of a request.

Every part is the gateway's own code, fed as the stations feed it; each figure is the median and range of several
repeats, the parts in turn so that a disturbance hits them all. Run it alone: `python -m benchmarks.micro`
(`make bench-micro`). `micro_tap`, `micro_delivery` and `micro_ingest` look at some of it more closely.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from benchmarks import micro_tap
from benchmarks.micro_ingest import settled_record
from benchmarks.vllm_bytes import chat_answer, stream_head, whole_response
from gateway.core.admission.queue import FairQueue, Ticket
from gateway.core.admission.quota import KeyMeter, Resource, judge
from gateway.core.link.framing import frame
from gateway.core.link.messages import Settled
from gateway.core.stream.edit import UsageStripped
from gateway.core.stream.http1 import ChunkedBody, body_of, chunk, parse_head
from gateway.core.stream.pace import PaceReport
from gateway.core.stream.summary import Dialect, Ending, RequestShape
from gateway.core.stream.tap import Tap, summarise_body
from gateway.proxy.relay import StreamRelay
from gateway.proxy.wire import ClientWire

_DATE = "Tue, 01 Dec 2026 12:00:00 GMT"
_BATCH = 50
_QUEUED = 64
_LIMITS = {Resource.CONCURRENCY: 1_000_000, Resource.REQUESTS: 1_000_000, Resource.TOKENS: 1_000_000_000}


@dataclass(frozen=True, slots=True)
class Part:
    """One part: `run(n)` does its work n times and returns how often it did it (for what comes in batches)."""

    name: str
    unit: str
    run: Callable[[int], int]


def _framing_of(pieces: tuple[bytes, ...], chunks: int) -> Callable[[int], int]:
    """The scanner of chunked bodies, one read after the other; `chunks` of them are in all pieces together."""

    def run(times: int) -> int:
        body = ChunkedBody()
        found = 0
        for _ in range(times):
            for piece in pieces:
                found += len(body.feed(piece))
        if found != times * chunks:
            raise SystemExit(f"the scanner found {found} chunks instead of {times * chunks}")
        return found

    return run


def _heads(times: int) -> int:
    head = stream_head(_DATE)
    for _ in range(times):
        parsed = parse_head(head)
        if parsed is None:
            raise SystemExit("the head was not understood")
        body_of(parsed[0])
    return times


def _through_the_queue(times: int) -> int:
    """Line up behind others and be served, as a request of one of four keys does while all places are taken."""
    queue = FairQueue()
    flows = [f"key-{number}" for number in range(4)]
    for flow in flows:
        queue.weigh(flow, 1.0)
    for number in range(times + _QUEUED):
        now = number * 0.001
        ticket = Ticket(flows[number % 4], want=("model", ()), queued_at=now, priority=0)
        queue.offer(ticket, places=1000, share=1.0, now=now)
        if number >= _QUEUED:
            first = queue.first()
            if first is None:
                raise SystemExit("nobody was served")
            queue.settle(first.flow, charged=queue.serve(first, now=now), cost=100.0)
    return times


def _leaving_the_queue(times: int) -> int:
    """Line up behind others and leave unserved, as a client does that gives up."""
    queue = FairQueue()
    queue.weigh("key", 1.0)
    waiting = [Ticket("key", want=("model", ()), queued_at=0.0, priority=0) for _ in range(_QUEUED)]
    for ticket in waiting:
        queue.offer(ticket, places=1000, share=1.0, now=0.0)
    for number in range(times):
        ticket = Ticket("key", want=("model", ()), queued_at=number * 0.001, priority=0)
        queue.offer(ticket, places=1000, share=1.0, now=number * 0.001)
        queue.leave(ticket)
    return times


def _quotas(times: int) -> int:
    """A key's limits on its way in and out: three of them, a thousand requests a second."""
    meter = KeyMeter()
    for number in range(times):
        now = number * 0.001
        if judge(meter, _LIMITS, shares=_LIMITS, now=now, now_wall=now) is not None:
            raise SystemExit("a request was refused")
        entered = meter.enter(now)
        meter.leave(entered, now, served=True)
        meter.charge(100, now=now, now_wall=now)
    return times


def _summaries(times: int) -> int:
    """What was measured of a stream of 100 chunks, made when it is over."""
    tap = Tap(Dialect.CHAT, RequestShape(stream=True), max_event_bytes=1 << 20)
    for number in range(100):
        tap.feed(micro_tap.REASONING if number < 50 else micro_tap.CONTENT, number * 0.005)
    found = tap.close(1.0)
    for _ in range(times):
        found = tap.close(1.0)
    if found.chunks != 100:
        raise SystemExit("the summary is of something else")
    return times


def _bodies(times: int) -> int:
    """What is measured of a whole answer."""
    body = chat_answer(16, prompt_tokens=17)
    shape = RequestShape(stream=False)
    for _ in range(times):
        summary = summarise_body(Dialect.CHAT, body, shape)
        if summary.completion_tokens != 16:
            raise SystemExit("the answer was not understood")
    return times


def _reports(times: int) -> int:
    """The message to control, with fifty records each."""
    batches = max(1, times // _BATCH)
    records = [settled_record(number) for number in range(_BATCH)]
    for _ in range(batches):
        frame(Settled(slot=0, records=records))
    return batches * _BATCH


class _Nobody:
    """Stands for the exchange and the client's connection of a relay: what is written goes nowhere."""

    def __init__(self) -> None:
        self.written = 0

    def finish(self, ending: Ending) -> None:
        raise SystemExit(f"the stream ended: {ending}")

    def take_turns(self) -> None:
        """There are no others."""

    def writer(self) -> Callable[[bytes], None]:
        return self._write

    def _write(self, _data: bytes) -> None:
        self.written += 1


def _relay(times: int) -> int:
    """All that happens between a read and a write, and the tap after it, with usage to be stripped at the end."""
    nobody = _Nobody()
    relay = StreamRelay(
        exchange=nobody,
        wire=cast("ClientWire", nobody),
        head=b"HTTP/1.1 200 OK\r\n\r\n",
        body=ChunkedBody(),
        dialect=Dialect.CHAT,
        edit=UsageStripped(),
        tap=Tap(Dialect.CHAT, RequestShape(stream=True), max_event_bytes=1 << 20),
        report=lambda _summary: PaceReport(request_id=""),
        client_chunked=True,
        hold_bytes=1 << 20,
        stopping=False,
        clock=time.monotonic,
    )
    content = chunk(micro_tap.CONTENT)
    relay.feed(content)
    for _ in range(times):
        relay.feed(content)
    if nobody.written != times + 1:
        raise SystemExit(f"{nobody.written} writes instead of {times + 1}")
    return times


def _tap_of(case: micro_tap.Case) -> Part:
    def run(times: int) -> int:
        tap = Tap(case.dialect, RequestShape(stream=True), max_event_bytes=1 << 20)
        for number in range(times):
            for piece in case.pieces:
                tap.feed(piece, number * 0.005)
        return times * case.chunks

    return Part(f"tap: {case.name}", "chunk", run)


def parts() -> tuple[Part, ...]:
    """Everything that is measured, in the order of a request's way."""
    content = chunk(micro_tap.CONTENT)
    answer = whole_response("200 OK", _DATE, content_type="application/json", body=chat_answer(16, prompt_tokens=17))
    plain = [case for case in micro_tap.CASES if case.name.startswith("chat")]
    return (
        Part("admission: a place in the queue, and served", "request", _through_the_queue),
        Part("admission: a place in the queue, and gone", "request", _leaving_the_queue),
        Part("admission: three limits of a key, in and out", "request", _quotas),
        Part("framing: head of a stream", "head", _heads),
        Part("framing: head of a whole answer", "head", lambda times: _whole_heads(answer, times)),
        Part("framing: one chunk a read", "chunk", _framing_of((content,), 1)),
        Part("framing: four chunks a read", "chunk", _framing_of((content * 4,), 4)),
        Part("framing: a chunk cut in two", "chunk", _framing_of((content[:100], content[100:]), 1)),
        Part("relay: one chunk a read, the tap included", "chunk", _relay),
        *(_tap_of(case) for case in plain),
        Part("settle: summary of a stream", "stream", _summaries),
        Part("settle: summary of a whole answer", "answer", _bodies),
        Part("settle: a record in the message to control", "record", _reports),
    )


def _whole_heads(answer: bytes, times: int) -> int:
    for _ in range(times):
        if parse_head(answer) is None:
            raise SystemExit("the head was not understood")
    return times


def measured(times: int, repeats: int) -> dict[str, list[float]]:
    """CPU microseconds of each part, one figure a repeat, by its name and unit."""
    every = parts()
    found: dict[str, list[float]] = {f"{part.name}, per {part.unit}": [] for part in every}
    for _ in range(repeats):
        for part, costs in zip(every, found.values(), strict=True):
            began = time.process_time()
            done = part.run(times)
            costs.append((time.process_time() - began) / done * 1e6)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20_000, help="how often each part is run in a repeat (20000)")
    parser.add_argument("--repeats", type=int, default=9, help="repeats of everything (9)")
    options = parser.parse_args()
    print(f"{'us of CPU':62} {'median':>8} {'least':>8} {'most':>8}")
    for name, costs in measured(options.times, options.repeats).items():
        print(f"{name:62} {statistics.median(costs):8.2f} {min(costs):8.2f} {max(costs):8.2f}")


if __name__ == "__main__":
    main()
