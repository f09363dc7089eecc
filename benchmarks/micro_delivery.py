"""Cost of reasoning delivery for each event, in microseconds of one core; `pass` costs nothing and is not here.

Feeds each mode's edit the events of one stream, a read each, as the relay does on its slow way (whose framing is not
counted), and prints the median and the range of several repeats.  The first half of a stream is reasoning, the rest
content.  Run it alone: `python -m benchmarks.micro_delivery`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import dataclass

from benchmarks.micro_tap import CONTENT, MESSAGES, REASONING, RESPONSES
from gateway.core.stream.delivery.delivered import deliver_stream, leave_out
from gateway.core.stream.delivery.mode import Delivery, ThinkTags
from gateway.core.stream.edit import UsageStripped
from gateway.core.stream.pace import PaceReport
from gateway.core.stream.summary import Dialect

RESPONSES_REASONING = RESPONSES.replace(b"output_text", b"reasoning_text")
RESPONSES_BEGIN = (
    b'event: response.output_item.added\ndata: {"item":{"id":"rs_1","type":"reasoning"},"output_index":0,'
    b'"sequence_number":2,"type":"response.output_item.added"}\n\n'
)
MESSAGES_REASONING = MESSAGES.replace(b'"text_delta","text"', b'"thinking_delta","thinking"').replace(b":1}", b":0}")
MESSAGES_BEGIN = (
    b'event: content_block_start\ndata: {"type":"content_block_start","content_block":{"type":"thinking","thinking":""},'
    b'"index":0}\n\n'
)


@dataclass(frozen=True, slots=True)
class Case:
    """One mode over one kind of stream: what it begins with, then reasoning and content in equal parts."""

    name: str
    mode: Delivery
    dialect: Dialect = Dialect.CHAT
    begin: bytes = CONTENT
    reasoning: bytes = REASONING
    content: bytes = CONTENT
    tags: ThinkTags | None = None


CASES = (
    *[Case(f"chat, {mode}", mode) for mode in Delivery if mode is not Delivery.PASS],
    Case("chat, tags in the text", Delivery.REASONING, reasoning=CONTENT, tags=ThinkTags(opened=True)),
    Case("responses, drop", Delivery.DROP, Dialect.RESPONSES, RESPONSES_BEGIN, RESPONSES_REASONING, RESPONSES),
    Case("messages, drop", Delivery.DROP, Dialect.MESSAGES, MESSAGES_BEGIN, MESSAGES_REASONING, MESSAGES),
)


def no_report() -> PaceReport:
    """Nobody asks for the numbers here."""
    raise AssertionError


def cost_per_event_us(case: Case, events: int) -> float:
    """The microseconds of CPU that one event of ``case`` costs, over a stream of ``events`` events."""
    edit = deliver_stream(case.mode, case.dialect, tags=case.tags, after=UsageStripped(), take=leave_out, side=None)
    edit.begin(case.begin)
    apply = edit.apply
    apply(case.begin, no_report)
    began = time.process_time()
    for event in (case.reasoning, case.content):
        for _ in range(events // 2):
            apply(event, no_report)
    return (time.process_time() - began) / (events // 2 * 2) * 1e6


def main(arguments: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args(arguments)
    costs: dict[str, list[float]] = {case.name: [] for case in CASES}
    for _ in range(options.repeats):
        for case in CASES:  # in turn, so that a disturbance hits them all
            costs[case.name].append(cost_per_event_us(case, options.events))
    for name, found in costs.items():
        print(f"{name:28} {statistics.median(found):6.2f} us an event ({min(found):.2f} to {max(found):.2f})")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
