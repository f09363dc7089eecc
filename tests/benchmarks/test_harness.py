"""Engine and clients against each other on a real socket, and the guards of a run."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from benchmarks import machine, report
from benchmarks.engine_request import Pace, content_length, read_pace
from benchmarks.load import AnswerClient, ChatRequest, Client, StreamClient, Tally, chat_request, connect
from benchmarks.mock_engine import Connection, Engine
from benchmarks.results import CostRound, LatencyRound, Machine, Run


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Engine, int]]:
    engine = Engine()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(engine), "127.0.0.1", 0)
    async with server:
        yield engine, server.sockets[0].getsockname()[1]


async def ended(client: Client, request: ChatRequest) -> None:
    done = asyncio.Event()
    client.send(request, done.set)
    async with asyncio.timeout(10):
        await done.wait()


@pytest.mark.asyncio
async def test_a_stream_of_the_mock_is_complete_for_the_client() -> None:
    tally = Tally()
    async with serving() as (engine, port):
        [client] = await connect(StreamClient, port, count=1, tally=tally)
        for include_usage in (False, True):
            await ended(client, chat_request(tokens=20, stream=True, pace_ms=1, include_usage=include_usage))
        client.close()
    assert tally.failures == []
    assert tally.complete_streams == 2
    assert tally.events == 20 + 21
    assert engine.counters.generation_tokens == 40
    assert engine.counters.running == 0


@pytest.mark.asyncio
async def test_whole_answers_follow_each_other_on_one_connection() -> None:
    tally = Tally()
    async with serving() as (_, port):
        [client] = await connect(AnswerClient, port, count=1, tally=tally)
        for _ in range(3):
            await ended(client, chat_request(tokens=16, stream=False))
        client.close()
    assert (tally.answers, tally.failures) == (3, [])


@pytest.mark.asyncio
async def test_a_stream_cut_short_is_a_failure() -> None:
    tally = Tally()
    async with serving() as (_, port):
        [client] = await connect(StreamClient, port, count=1, tally=tally)
        asked = chat_request(tokens=20, stream=True, pace_ms=1)
        more = ChatRequest(data=asked.data, events=asked.events + 1, answer_bytes=0)
        await ended(client, more)
        client.close()
    assert tally.failures == ["20 events instead of 21"]


@pytest.mark.asyncio
async def test_an_error_status_is_a_failure() -> None:
    tally = Tally()
    async with serving() as (_, port):
        [client] = await connect(AnswerClient, port, count=1, tally=tally)
        asked = chat_request(tokens=16, stream=False)
        await ended(client, ChatRequest(asked.data.replace(b"/v1/chat/", b"/v1/chit/"), events=0, answer_bytes=0))
        client.close()
    assert tally.failures == ["status 404"]


class DeafTransport(asyncio.Transport):
    """A client's end that takes everything."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))


@pytest.mark.asyncio
async def test_the_engine_drops_the_stream_of_a_client_that_left() -> None:
    engine, transport = Engine(), DeafTransport()
    connection = Connection(engine)
    connection.connection_made(transport)
    connection.data_received(chat_request(tokens=100, stream=True).data)
    assert engine.counters.running == 1
    connection.connection_lost(None)
    # The first step was already on its way to the loop: it must find nobody.
    await asyncio.sleep(0)
    assert (engine.counters.running, engine.counters.aborted, engine.counters.generation_tokens) == (0, 1, 0)
    assert transport.written == [engine.stream_head]


def test_events_cut_anywhere_are_counted_once() -> None:
    body = b'data: {"created":1000000000}\n\ndata: {"finish_reason":"stop"}\n\ndata: [DONE]\n\n'
    for cut in range(1, len(body)):
        tally = Tally()
        client = StreamClient(tally)
        client.request = ChatRequest(data=b"", events=3, answer_bytes=0)
        client.on_body(body[:cut])
        client.on_body(body[cut:])
        assert (tally.events, client.fault()) == (3, None), cut


def test_the_pace_is_read_from_the_prompt() -> None:
    assert read_pace("Tell me. pace_ms=12.5 grid_ms=25 x=1") == Pace(pace_ms=12.5, grid_ms=25.0)
    assert read_pace("nothing") == Pace()


def test_content_length_is_found_in_any_case_and_is_zero_without() -> None:
    assert content_length(b"POST / HTTP/1.1\r\nHost: a\r\nCONTENT-length: 12\r\n") == 12
    assert content_length(b"GET / HTTP/1.1\r\nHost: a\r\n") == 0


def cost(relay: str, us: float, *, number: int = 0, foreign: float = 0.0) -> CostRound:
    return CostRound(
        relay=relay,
        kind="stream",
        level=64,
        number=number,
        window_s=2.0,
        units=5000,
        cpu_us={"worker": us, "control": 1.0} if relay == "pacekeeper" else {"all": us},
        waited_share=0.0,
        load_core_busy=0.2,
        foreign_share=foreign,
        lag_p50_us=None,
        lag_p99_us=None,
        failures=[],
    )


def run_of(*costs: CostRound) -> Run:
    here = Machine(date="2026", cpu_model="c", cores=2, kernel="k", python="p", revision="r", load_average=0)
    return Run(machine=here, settings={"streams": 64, "pace_ms": 25.0}, costs=list(costs))


def test_of_two_windows_the_less_disturbed_counts_whatever_it_cost() -> None:
    quiet, loud = cost("nginx", 30.0, foreign=0.02), cost("nginx", 20.0, foreign=0.4)
    assert machine.quietest([loud, quiet]) == [quiet]
    assert machine.quietest([quiet, loud]) == [quiet]


def test_disturbed_windows_are_counted_with_the_worst_and_quiet_ones_say_nothing() -> None:
    assert machine.warnings(run_of(cost("nginx", 20.0))) == []
    rounds = [cost("nginx", 20.0, number=number, foreign=foreign) for number, foreign in enumerate((0.0, 0.4, 0.2))]
    assert machine.warnings(run_of(*rounds)) == [
        "2 of 3 windows: other processes took more than 0.1 of the run's cores (worst 0.40, nginx, stream x64, round 1)"
    ]


def test_the_table_shows_ratios_the_split_and_what_is_missing() -> None:
    run = run_of(cost("nginx", 20.0), cost("pacekeeper", 26.0), cost("nginx", 40.0, number=1))
    run.notes = {"nginx": "C", "pacekeeper": "ours", "vllm-router": "Rust"}
    run.missing = {"vllm-router": "not installed"}
    text = report.markdown(run)
    assert "| vllm-router | missing: not installed |" in text
    row = next(line for line in text.splitlines() if line.startswith("| pacekeeper | 27.0"))
    assert "1.35 (1.35-1.35) | 1.30 (1.30-1.30)" in row
    assert "worker 26.0, control 1.0" in row


@pytest.mark.parametrize("fault", [[], ["status 500"]])
def test_rounds_with_failures_are_left_out_of_the_sums_and_named(fault: list[str]) -> None:
    bad = LatencyRound(
        relay="nginx",
        level=1,
        number=0,
        ttft_p50_us=100.0,
        ttft_p99_us=200.0,
        probes=10,
        lag_p50_us=30.0,
        lag_p99_us=60.0,
        lags=40,
        failures=fault,
    )
    run = run_of()
    run.latencies = [bad]
    run.warnings = machine.warnings(run)
    assert ("| nginx | 1 |" in report.markdown(run)) is not bool(fault)
    assert ("status 500" in "".join(run.warnings)) is bool(fault)
