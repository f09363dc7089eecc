"""A mock vLLM engine: raw protocol on uvloop, timer-paced, never the bottleneck.

Run as a process (`python -m benchmarks.mock_engine --port N`). Words in the prompt set a request's pace, so that
they pass through any relay: `pace_ms=25 first_ms=0 grid_ms=1` (step interval, delay of the first token, grid on
which steps fall: equal to the pace, all streams step at once like a real engine's batch). It serves
`/v1/chat/completions`, `/v1/models`, `/health`, `/version` and `/metrics`, and drops a request whose client left.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import heapq
import json
import time
from email.utils import formatdate
from typing import cast

import msgspec
import uvloop

from benchmarks import vllm_bytes
from benchmarks.engine_metrics import EngineCounters, metrics_page, quiet_page
from benchmarks.engine_request import ChatCall, Pace, content_length, read_pace

_HEAD_LIMIT_BYTES = 64 * 1024
_PROMPT_TOKENS = 17


class Stream:
    """One answer in progress: which step comes next, and when. Owned by the engine's heap."""

    __slots__ = ("connection", "due_s", "index", "key", "pace", "steps")

    def __init__(
        self, connection: Connection, key: bytes, *, steps: tuple[tuple[vllm_bytes.Event, ...], ...], pace: Pace
    ) -> None:
        self.connection = connection
        self.key = key
        self.steps = steps
        self.pace = pace
        self.index = 0
        self.due_s = 0.0


class Engine:
    """The clockwork: one heap of due streams and one timer for its top. Owns the counters."""

    def __init__(self) -> None:
        self.counters = EngineCounters()
        self.date = formatdate(usegmt=True)
        self.stream_head = vllm_bytes.stream_head(self.date)
        self._quiet_metrics = quiet_page()
        self._loop = asyncio.get_running_loop()
        self._heap: list[tuple[float, int, Stream]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_s = 0.0
        self._serial = 0
        self._steps: dict[tuple[int, bool], tuple[tuple[vllm_bytes.Event, ...], ...]] = {}
        self._decoder = msgspec.json.Decoder(ChatCall)
        self._models = self._whole(vllm_bytes.models_answer())
        self._answers: dict[int, bytes] = {}

    def _whole(self, body: bytes, *, status: str = "200 OK", content_type: str = "application/json") -> bytes:
        return vllm_bytes.whole_response(status, self.date, content_type=content_type, body=body)

    def reply(self, connection: Connection, target: bytes, *, body: bytes) -> bytes | None:
        """The whole response to a request, or None when it is answered later, in steps."""
        match target:
            case b"/v1/chat/completions":
                return self._chat(connection, body)
            case b"/health":
                return self._whole(b"")
            case b"/v1/models":
                return self._models
            case b"/version":
                return self._whole(b'{"version":"0.32.0"}')
            case b"/metrics":
                page = metrics_page(self.counters, self._quiet_metrics)
                return self._whole(page, content_type="text/plain; version=1.0.0; charset=utf-8")
            case _:
                return self._whole(b'{"detail":"Not Found"}', status="404 Not Found")

    def _chat(self, connection: Connection, body: bytes) -> bytes | None:
        try:
            call = self._decoder.decode(body)
            pace = read_pace(call.messages[-1].content)
        except (msgspec.DecodeError, IndexError) as error:
            fault = {"error": {"message": str(error), "type": "Bad Request", "param": None, "code": 400}}
            return self._whole(json.dumps(fault).encode(), status="400 Bad Request")
        tokens = max(2, call.max_completion_tokens or call.max_tokens or 16)
        self.counters.prompt_tokens += _PROMPT_TOKENS
        if not call.stream:
            self.counters.generation_tokens += tokens
            self.counters.finished += 1
            return self._answer(tokens)
        with_usage = bool(call.stream_options and call.stream_options.include_usage)
        self._serial += 1
        stream = Stream(
            connection,
            vllm_bytes.stream_key(self._serial),
            steps=self._steps_of(tokens, with_usage=with_usage),
            pace=pace,
        )
        connection.stream = stream
        self.counters.running += 1
        # The head is a write of its own, as with vLLM, which sends it before the request reaches its queue.
        connection.write(self.stream_head)
        self._loop.call_soon(self._begin, stream)
        return None

    def _answer(self, tokens: int) -> bytes:
        answer = self._answers.get(tokens)
        if answer is None:
            answer = self._whole(vllm_bytes.chat_answer(tokens, prompt_tokens=_PROMPT_TOKENS))
            self._answers[tokens] = answer
        return answer

    def _steps_of(self, tokens: int, *, with_usage: bool) -> tuple[tuple[vllm_bytes.Event, ...], ...]:
        steps = self._steps.get((tokens, with_usage))
        if steps is None:
            steps = vllm_bytes.stream_steps(tokens, prompt_tokens=_PROMPT_TOKENS, with_usage=with_usage)
            self._steps[tokens, with_usage] = steps
        return steps

    def _begin(self, stream: Stream) -> None:
        stream.due_s = self._loop.time() + stream.pace.first_ms / 1000
        if stream.pace.first_ms > 0:
            self._push(stream)
        else:
            self._step(stream)

    def _push(self, stream: Stream) -> None:
        grid_s = stream.pace.grid_ms / 1000
        at_s = -(-stream.due_s // grid_s) * grid_s
        self._serial += 1
        heapq.heappush(self._heap, (at_s, self._serial, stream))
        self._arm()

    def _arm(self) -> None:
        due_s = self._heap[0][0]
        if self._timer is not None:
            if self._timer_due_s <= due_s:
                return
            self._timer.cancel()
        self._timer_due_s = due_s
        self._timer = self._loop.call_at(due_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        heap = self._heap
        # Half a grid step of grace: the loop's timers count whole milliseconds.
        now_s = self._loop.time() + 0.0005
        ready = []
        while heap and heap[0][0] <= now_s:
            ready.append(heapq.heappop(heap)[2])
        for stream in ready:
            self._step(stream)
        if heap:
            self._arm()

    def _step(self, stream: Stream) -> None:
        connection = stream.connection
        if connection.stream is not stream:
            return  # its client left
        events = stream.steps[stream.index]
        stream.index += 1
        self.counters.generation_tokens += 1
        parts: list[bytes] = []
        if events:
            now = vllm_bytes.stamp(time.monotonic_ns() // 1000)
            for event in events:
                parts += (event.opening, stream.key, event.middle, now if event.stamped else b"", event.closing)
        if stream.index < len(stream.steps):
            if parts:
                connection.write(b"".join(parts))
            stream.due_s += stream.pace.pace_ms / 1000
            self._push(stream)
            return
        parts.append(vllm_bytes.ENDING)
        connection.write(b"".join(parts))
        self.counters.running -= 1
        self.counters.finished += 1
        connection.finished()

    def gone(self, connection: Connection) -> None:
        """Forget the request of a connection whose client left; its steps are skipped when they come due."""
        if connection.stream is not None:
            connection.stream = None
            self.counters.running -= 1
            self.counters.aborted += 1


class Connection(asyncio.Protocol):
    """One connection: requests one after the other, each with Content-Length or no body."""

    __slots__ = ("_engine", "_inbox", "_transport", "stream")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._inbox = b""
        self._transport: asyncio.Transport | None = None
        self.stream: Stream | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, _exc: Exception | None) -> None:
        """The other side is gone."""
        self._transport = None
        self._engine.gone(self)

    def write(self, data: bytes) -> None:
        """Send, unless the client is gone."""
        if self._transport is not None:
            self._transport.write(data)

    def finished(self) -> None:
        """The stream on this connection has ended; the next request may begin."""
        self.stream = None
        self._take()

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self._inbox = self._inbox + data if self._inbox else data
        if self.stream is None:
            self._take()

    def _take(self) -> None:
        while self._inbox and self.stream is None:
            head_end = self._inbox.find(b"\r\n\r\n")
            if head_end < 0:
                if len(self._inbox) > _HEAD_LIMIT_BYTES and self._transport is not None:
                    self._transport.abort()
                return
            head = self._inbox[: head_end + 2]
            total = head_end + 4 + content_length(head)
            if len(self._inbox) < total:
                return
            body = self._inbox[head_end + 4 : total]
            self._inbox = self._inbox[total:]
            response = self._engine.reply(self, head.split(b" ", 2)[1], body=body)
            if response is not None:
                self.write(response)


async def _serve(port: int) -> None:
    engine = Engine()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(engine), "127.0.0.1", port, backlog=2048)
    # A collection would show as a gap in every stream at once; nothing here grows with time.
    gc.freeze()
    gc.disable()
    async with server:
        await server.serve_forever()


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    uvloop.run(_serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
