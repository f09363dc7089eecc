"""Are the gateway's numbers right? Compares them with vLLM's own, request by request.

    .venv/bin/python -m tests.live.rates 8080 --operators 8081 --token var/run/admin.token

for a gateway whose engine runs with `--enable-per-request-metrics`. Each stream asks for usage, so that the
engine's own counts and `mean_itl_ms` are in the bytes that the client reads, and for `X-Gateway-Metrics: event`,
so that the gateway's are too; the gateway's history must say the same as that event. Prints a line for each number
of concurrent streams, and each line twice: of all streams, and of those at which the machine did not stall, so that
nothing is left out unseen. Bounded: about 12 s and 100 streams with the defaults on two cores.
"""

import argparse
import json
import statistics
import sys
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.live.rig import wire
from tests.live.rig.crowd import at_once
from tests.live.rig.processes import until

# A rate over few tokens is mostly the edges of its window.
LONG_TOKENS = 200
# How far this client's own rate may be from the engine's before the machine is what was measured.
DISTURBED = 0.03
PROMPTS: tuple[dict[str, Any], ...] = (
    wire.chat("count please"),
    wire.chat("ponder please"),
    wire.chat("count please", max_tokens=800, ignore_eos=True),
    wire.chat("hello there"),
    wire.chat("emoji please"),
)


@dataclass(frozen=True, slots=True)
class Compared:
    """One stream as both saw it. Rates in tokens per second; `engine_tps` is 1000 / mean_itl_ms.

    `told` stands in the event that the client got, `kept` in the history. `client_tps` is what this client saw
    between the first event and the finish reason.
    """

    request_id: str
    engine_tokens: int
    engine_reasoning_tokens: int
    engine_tps: float
    told_tokens: int | None
    told_reasoning_tokens: int | None
    told_tps: float | None
    kept_tokens: int | None
    kept_reasoning_tokens: int | None
    kept_tps: float | None
    client_tps: float

    @property
    def counts_agree(self) -> bool:
        """Whether event and history both have the engine's own counts."""
        engine = (self.engine_tokens, self.engine_reasoning_tokens)
        told = (self.told_tokens, self.told_reasoning_tokens)
        return engine == told == (self.kept_tokens, self.kept_reasoning_tokens)

    @property
    def is_long(self) -> bool:
        return self.engine_tokens >= LONG_TOKENS

    def disturbed(self, bound: float) -> bool:
        """Whether the machine stalled at an end of this stream: this client's own rate is off by more than `bound`.

        A gateway that measured wrongly would not change what its client sees; one that is not given the processor
        does.
        """
        return abs(self.client_tps / self.engine_tps - 1) > bound

    @property
    def difference(self) -> float:
        """The gateway's rate less the engine's, over the engine's."""
        if self.kept_tps is None:
            raise AssertionError(f"no rate for {self.request_id}, a stream of {self.engine_tokens} tokens")
        return self.kept_tps / self.engine_tps - 1


@dataclass(frozen=True, slots=True)
class Row:
    """The differences of all streams at one concurrency; relative, over the long streams."""

    concurrency: int
    streams: int
    counts_that_differ: int
    long_streams: int
    median: float
    p90: float
    worst: float
    client_worst: float
    engine_tps_median: float


class Pace:
    """A gateway to be measured: its clients' port, its operators' port and the token for that."""

    def __init__(self, port: int, operators_port: int, token: str) -> None:
        self._port = port
        self._operators_port = operators_port
        self._authorization = {"Authorization": f"Bearer {token}"}

    def compare(self, body: dict[str, Any]) -> Compared:
        """Send one stream, read it to its end, look it up in the history."""
        request_id = f"rates-{uuid.uuid4().hex}"
        asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
        headers = {"X-Request-Id": request_id, "X-Gateway-Metrics": "event"}
        usage: dict[str, Any] = {}
        metrics: dict[str, Any] = {}
        told: dict[str, Any] = {}
        window = [0.0, 0.0]
        with wire.Call(self._port, wire.CHAT, asked, headers=headers) as call:
            for event in call.events():
                if event.data == wire.DONE:
                    break
                window[0] = window[0] or event.at_s
                if '"finish_reason":null' not in event.data and not window[1]:
                    window[1] = event.at_s
                if b'"choices":[]' in event.data.encode().replace(b" ", b""):
                    last = event.json()
                    usage = last.get("usage") or usage
                    metrics = last.get("metrics") or metrics
                    told = last.get("pacekeeper") or told
        kept = self._kept(request_id)
        return Compared(
            request_id=request_id,
            engine_tokens=usage["completion_tokens"],
            engine_reasoning_tokens=usage["completion_tokens_details"]["reasoning_tokens"],
            engine_tps=1000 / metrics["mean_itl_ms"],
            told_tokens=told.get("completion_tokens"),
            told_reasoning_tokens=told.get("reasoning_tokens"),
            told_tps=told.get("decode_tps"),
            kept_tokens=kept.get("completion_tokens"),
            kept_reasoning_tokens=kept.get("reasoning_tokens"),
            kept_tps=kept.get("decode_tps"),
            client_tps=(usage["completion_tokens"] - 1) / (window[1] - window[0]),
        )

    def _kept(self, request_id: str) -> dict[str, Any]:
        """The measurements that the history keeps of a request."""
        found: list[dict[str, Any]] = []

        def there() -> bool:
            status, body = wire.get(
                self._operators_port, f"/admin/v1/requests/{request_id}", headers=self._authorization
            )
            if status == 200:
                found.append(json.loads(body)["record"]["summary"])
            return bool(found)

        until(there, f"{request_id} in the history", within_s=10, poll_s=0.05)
        return found[0]

    def compare_many(self, concurrency: int, streams: int) -> list[Compared]:
        """`streams` streams of all kinds, `concurrency` at a time."""
        bodies = [PROMPTS[number % len(PROMPTS)] for number in range(streams)]
        return at_once(self.compare, bodies, abreast=concurrency)


def undisturbed(compared: Sequence[Compared], *, bound: float) -> list[Compared]:
    """The long streams at which the machine did not stall."""
    return [one for one in compared if one.is_long and not one.disturbed(bound)]


def summarise(concurrency: int, compared: Sequence[Compared]) -> Row:
    """One row of the table."""
    long = [one for one in compared if one.is_long]
    differences = sorted((one.difference for one in long), key=abs)
    return Row(
        concurrency=concurrency,
        streams=len(compared),
        counts_that_differ=sum(not one.counts_agree for one in compared),
        long_streams=len(long),
        median=statistics.median(abs(difference) for difference in differences),
        p90=abs(differences[(len(differences) * 9 - 1) // 10]),
        worst=differences[-1],
        client_worst=max((one.client_tps / one.engine_tps - 1 for one in long), key=abs),
        engine_tps_median=statistics.median(one.engine_tps for one in long),
    )


def table(rows: Sequence[Row]) -> str:
    """The rows for people: how far `decode_tps` is from the engine's rate, and the worst that this client saw."""
    head = "at a time  streams  counts that differ  of >= 200 tokens  engine tok/s    median      p90     worst    client's"
    lines = [
        f"{row.concurrency:9}  {row.streams:7}  {row.counts_that_differ:18}  {row.long_streams:16}"
        f"  {row.engine_tps_median:12.0f}  {row.median:8.2%}  {row.p90:7.2%}  {row.worst:+8.2%}  {row.client_worst:+8.2%}"
        for row in rows
    ]
    return "\n".join([head, *lines])


def main() -> int:
    """Measure and print; exit code 1 when a count differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("port", type=int, help="the gateway's port for clients")
    parser.add_argument("--operators", type=int, required=True, help="its port for operators")
    parser.add_argument("--token", type=Path, required=True, help="the file with the operators' token")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 16], help="streams at a time")
    parser.add_argument("--streams", type=int, default=40, help="streams in all, for each concurrency")
    parser.add_argument("--disturbed", type=float, default=DISTURBED, help="bound of the second table, as a fraction")
    parser.add_argument("--json", action="store_true", help="every stream as JSON lines instead of the table")
    given = parser.parse_args()
    pace = Pace(given.port, given.operators, given.token.read_text().strip())
    compared = {concurrency: pace.compare_many(concurrency, given.streams) for concurrency in given.concurrency}
    rows = [summarise(concurrency, ones) for concurrency, ones in compared.items()]
    if given.json:
        for concurrency, ones in compared.items():
            for one in ones:
                sys.stdout.write(json.dumps({"concurrency": concurrency, **asdict(one)}) + "\n")
    else:
        calm = {concurrency: undisturbed(ones, bound=given.disturbed) for concurrency, ones in compared.items()}
        sys.stdout.write(f"all streams\n{table(rows)}\n\n")
        sys.stdout.write(
            f"long streams at which this client's own rate is within {given.disturbed:.0%} of the engine's\n"
        )
        sys.stdout.write(table([summarise(concurrency, ones) for concurrency, ones in calm.items() if ones]) + "\n")
    return 1 if any(row.counts_that_differ for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
