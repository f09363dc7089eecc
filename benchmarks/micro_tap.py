"""Cost of the tap for each chunk, in microseconds of one core: the figure P7 (at most 3 for a plain chat chunk).

Feeds one tap a stream of chunks as the relay would, framing and decoding included, and prints the median and the
range of several repeats; each repeat times a whole stream, so that a timer's own cost does not count.  The chunks are
as long as vLLM's (218 bytes).  Run it alone: `python -m benchmarks.micro_tap`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from gateway.core.stream.summary import Dialect, RequestShape
from gateway.core.stream.tap import Tap

_HEAD = '{"id":"chatcmpl-9f81031020311881","object":"chat.completion.chunk","created":1796089908,"model":"tiny",'
_TAIL = '"logprobs":null,"finish_reason":null,"token_ids":null}]'
_USAGE = ',"usage":{"prompt_tokens":14,"total_tokens":95,"completion_tokens":81,"completion_tokens_details":{"reasoning_tokens":40}}'


def _event(data: str) -> bytes:
    return f"data: {data}\n\n".encode()


def _chat(delta: str, more: str = "") -> bytes:
    return _event(f'{_HEAD}"choices":[{{"index":0,"delta":{delta},{_TAIL}{more}}}')


CONTENT = _chat('{"content":" step"}')
REASONING = _chat('{"reasoning":" step"}')
CONTINUOUS = _chat('{"content":" step"}', _USAGE)
COMPLETIONS = _event(
    '{"id":"cmpl-b6fb6147f2c81dc9","object":"text_completion","created":1796089938,"model":"tiny","choices":[{"index":0,'
    '"text":" 9","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]}'
)
RESPONSES = (
    b'event: response.output_text.delta\ndata: {"content_index":0,"delta":" step","item_id":"msg_8f3bccaa6dbe7c0e",'
    b'"logprobs":[],"output_index":1,"sequence_number":52,"type":"response.output_text.delta"}\n\n'
)
MESSAGES = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"type":"text_delta","text":" step"},'
    b'"index":1}\n\n'
)


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of read: what it holds, in how many pieces it comes, and how many chunks it is."""

    name: str
    dialect: Dialect
    pieces: tuple[bytes, ...]
    chunks: int = 1


CASES = (
    Case("chat content", Dialect.CHAT, (CONTENT,)),
    Case("chat reasoning", Dialect.CHAT, (REASONING,)),
    Case("chat continuous usage", Dialect.CHAT, (CONTINUOUS,)),
    Case("completions", Dialect.COMPLETIONS, (COMPLETIONS,)),
    Case("responses", Dialect.RESPONSES, (RESPONSES,)),
    Case("messages", Dialect.MESSAGES, (MESSAGES,)),
    Case("chat, four events a read", Dialect.CHAT, (CONTENT * 4,), chunks=4),
    Case("chat, cut in two", Dialect.CHAT, (CONTENT[:100], CONTENT[100:])),
)


def cost_per_chunk_us(case: Case, reads: int) -> float:
    """Return the microseconds of CPU that one chunk of ``case`` costs, over a stream of ``reads`` reads."""
    tap = Tap(case.dialect, RequestShape(stream=True), max_event_bytes=1 << 20)
    feed = tap.feed
    # Gaps of about 5 ms, of several lengths: the same bucket every time would be kinder than a real stream.
    instants = [number * 0.005 + (number % 13) * 0.0001 for number in range(reads)]
    feed(b"".join(case.pieces), 0.0)
    began = time.process_time()
    for now in instants:
        for piece in case.pieces:
            feed(piece, now)
    spent = time.process_time() - began
    summary = tap.close(instants[-1])
    if summary.chunks < reads * case.chunks or summary.bad_events:
        sys.exit(f"{case.name}: the tap read {summary.chunks} chunks and {summary.bad_events} bad events")
    return spent / (reads * case.chunks) * 1e6


def cost_per_stream_us(streams: int) -> float:
    """Return the microseconds of CPU that making and closing one tap costs."""
    began = time.process_time()
    for _ in range(streams):
        tap = Tap(Dialect.CHAT, RequestShape(stream=True), max_event_bytes=1 << 20)
        tap.feed(CONTENT, 0.0)
        tap.close(1.0)
    return (time.process_time() - began) / streams * 1e6


def rows(reads: int, repeats: int) -> Iterator[tuple[str, list[float]]]:
    """Measure every case ``repeats`` times, the cases in turn, so that a disturbance hits them all."""
    costs: dict[str, list[float]] = {case.name: [] for case in CASES}
    per_stream: list[float] = []
    for _ in range(repeats):
        for case in CASES:
            costs[case.name].append(cost_per_chunk_us(case, reads))
        per_stream.append(cost_per_stream_us(max(1, reads // 20)))
    yield from costs.items()
    yield "a stream of one chunk, made and closed", per_stream


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Cost of the tap for each chunk.")
    parser.add_argument("--reads", type=int, default=20_000, help="reads of one stream (default 20000)")
    parser.add_argument("--repeats", type=int, default=15, help="streams of each kind (default 15)")
    options = parser.parse_args()
    print(f"{'us of CPU per chunk':40} {'median':>8} {'least':>8} {'most':>8}")
    for name, costs in rows(options.reads, options.repeats):
        print(f"{name:40} {statistics.median(costs):8.2f} {min(costs):8.2f} {max(costs):8.2f}")


if __name__ == "__main__":
    main()
