"""How answers of the Responses and the Messages API wait and end: key, queue, drain, SIGTERM, death, lost clients.

Recorded, and watched here on simulated servers of the checks' own.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conformance import endings
from tests.conformance.endings import Open, Pair
from tests.conformance.targets import VARIANTS, SimulatedServer, Target, exchange, raw_request
from tests.fakes.recordings import RecordedEnd, Recording

Start = Callable[..., SimulatedServer]
COUNT: dict[str, Any] = {
    "input": "count please", "messages": [{"role": "user", "content": "count please"}],
    "max_tokens": 1900, "max_output_tokens": 1900,
}  # fmt: skip
PAIRS: dict[str, Pair] = {
    "responses": ("responses-stream", "responses-nonstream", COUNT),
    "messages": ("messages-stream", "messages-nonstream", COUNT),
}


@pytest.fixture
def ready() -> Iterator[Start]:
    """Start simulated servers of these arguments and wait until they serve."""
    started: list[SimulatedServer] = []

    def begin(*arguments: str, speed: float = 1.0, sigterm: str = "abort") -> SimulatedServer:
        server = SimulatedServer(*VARIANTS["base"], *arguments, speed=speed, sigterm=sigterm)
        started.append(server)
        server.await_ready()
        return server

    yield begin
    for server in started:
        server.kill()


def text_of(recording: Recording) -> str:
    return recording.raw.decode("utf-8", "replace")


def check_created_comes_at_once(reads: list[bytes]) -> None:
    early = b"".join(reads)
    assert re.findall(rb"^event: (\S+)", early, re.MULTILINE) == [b"response.created", b"response.in_progress"]


def test_a_queued_response_has_its_first_two_events_at_once_recorded(recorded: Target) -> None:
    answer = recorded.exchange("queued-responses-stream")
    check_created_comes_at_once([read.data for read in answer.reads if read.at_s < 1])
    assert answer.reads[-1].at_s > 1


def test_a_queued_message_has_no_event_before_its_first_token_recorded(recorded: Target) -> None:
    answer = recorded.exchange("queued-messages-stream")
    assert [read.data for read in answer.reads if read.at_s < 1] == [answer.head]
    assert answer.reads[-1].at_s > 1


def early_reads(port: int, name: str) -> list[bytes]:
    """What a stream sends while another one is all that runs."""
    data, _ = raw_request(name)
    with socket.create_connection(("127.0.0.1", port), 5) as waiting:
        waiting.settimeout(0.5)
        waiting.sendall(data)
        reads = []
        while True:
            try:
                reads.append(waiting.recv(65536))
            except TimeoutError:
                return reads


def test_what_comes_while_a_request_waits_simulated(ready: Start) -> None:
    server = ready("--max-num-seqs", "1")
    data, _ = raw_request("chat-stream-count", max_tokens=1900, ignore_eos=True)
    with socket.create_connection(("127.0.0.1", server.port), 5) as running:
        running.sendall(data)
        endings.await_running(server.port, 1)
        check_created_comes_at_once(early_reads(server.port, "responses-stream"))
        assert b"".join(early_reads(server.port, "messages-stream")).endswith(b"\r\n\r\n")


KEY = ("key-responses", "key-messages", "key-messages-x-api-key", "key-unknown-path", "key-wrong-method")


def test_a_missing_key_is_told_before_anything_else(ready: Start, recorded: Target) -> None:
    server = ready("--api-key", "secret")
    for name in KEY:
        answer, theirs = exchange(server.port, name), recorded.exchange(name)
        assert (answer.status, answer.body, list(answer.headers)) == (401, theirs.body, list(theirs.headers))
    assert exchange(server.port, "detokenize").status == 200


DRAINED = ("drain-new-responses", "drain-new-messages", "drain-new-messages-stream", "drain-new-count-tokens",
           "drain-new-detokenize", "drain-new-get")  # fmt: skip


def test_a_draining_server_refuses_with_the_recorded_bytes_and_finishes_what_is_open(
    ready: Start, recorded: Target
) -> None:
    server = ready("--shutdown-timeout", "20", speed=4.0)
    data, _ = raw_request("responses-stream", **COUNT)
    with socket.create_connection(("127.0.0.1", server.port), 5) as held:
        held.sendall(data)
        seen = b""
        while b"delta" not in seen:
            seen += held.recv(65536)
        server.process.terminate()
        deadline = time.monotonic() + 5
        while exchange(server.port, "drain-new-responses", max_output_tokens=1).status == 200:
            assert time.monotonic() < deadline
        for name in DRAINED:
            answer, theirs = exchange(server.port, name), recorded.exchange(name)
            assert (answer.status, answer.body, list(answer.headers)) == (
                theirs.status, theirs.body, list(theirs.headers)
            )  # fmt: skip
        held.settimeout(20)
        while not seen.endswith(b"0\r\n\r\n"):
            seen += held.recv(65536)
    assert b'"status":"incomplete"' in seen  # the limit ended it, not the signal


def check_aborted(which: str, stream: str, nonstream: str) -> None:
    """Nothing tells an abort: a response is completed, a message has no reason to have ended."""
    if which == "responses":
        assert '"status":"completed","text"' in stream
        assert stream.endswith('"type":"response.completed"}\n\n\r\n0\r\n\r\n')
        assert '"incomplete_details":null' in nonstream
        assert '"status":"completed","text"' in nonstream
    else:
        assert '"delta":{"stop_reason":null,"stop_sequence":null}' in stream
        assert stream.endswith('event: message_stop\ndata: {"type":"message_stop"}\n\n\r\n0\r\n\r\n')
        assert '"model":"tiny","usage"' in nonstream


@pytest.mark.parametrize("which", PAIRS)
def test_sigterm_ends_answers_that_do_not_tell_it_recorded(which: str, recorded: Target) -> None:
    stream, nonstream = (recorded.exchange(f"sigterm-abort-{which}-{kind}") for kind in ("stream", "nonstream"))
    assert stream.end is nonstream.end is RecordedEnd.COMPLETE
    check_aborted(which, text_of(stream), text_of(nonstream))


@pytest.mark.parametrize("which", PAIRS)
def test_sigterm_ends_answers_that_do_not_tell_it_simulated(which: str, ready: Start) -> None:
    ending = endings.watched(ready(), "term", pair=PAIRS[which])
    assert ending.stream.end is ending.nonstream.end is RecordedEnd.COMPLETE
    check_aborted(which, ending.stream.last, ending.nonstream.last)
    assert ending.exit_code == 0


def check_died(which: str, stream: Open, nonstream: str, theirs: str) -> None:
    if which == "responses":
        assert stream.end is RecordedEnd.EOF
        assert stream.last.endswith("}\n\n\r\n")  # no error event, no terminator: the connection is cut
        assert "error" not in stream.last
    else:
        assert stream.end is RecordedEnd.COMPLETE
        error = re.search(r"[0-9a-f]+\r\nevent: error\n.*", theirs, re.DOTALL)
        assert error is not None
        assert stream.last.endswith(error[0])
    head, _, body = nonstream.partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 500 Internal Server Error")
    assert "EngineCore encountered an issue" in body
    assert body.startswith('{"type":"error"' if which == "messages" else '{"error"')


@pytest.mark.parametrize("which", PAIRS)
def test_an_engines_death_cuts_a_response_and_ends_a_message_with_an_error_recorded(
    which: str, recorded: Target
) -> None:
    stream, nonstream = (recorded.exchange(f"engine-killed-{which}-{kind}") for kind in ("stream", "nonstream"))
    check_died(which, Open(stream.end, last=text_of(stream)), text_of(nonstream), text_of(stream))


@pytest.mark.parametrize("which", PAIRS)
def test_an_engines_death_cuts_a_response_and_ends_a_message_with_an_error_simulated(
    which: str, ready: Start, recorded: Target
) -> None:
    ending = endings.watched(ready(), "kill-core", pair=PAIRS[which])
    check_died(which, ending.stream, ending.nonstream.last, text_of(recorded.exchange(f"engine-killed-{which}-stream")))
    assert ending.exit_code == 0


@pytest.mark.parametrize("which", PAIRS)
def test_a_killed_server_cuts_them(which: str, ready: Start) -> None:
    ending = endings.watched(ready(), "kill", watch_s=1.0, pair=PAIRS[which])
    assert ending.stream.end is ending.nonstream.end is RecordedEnd.EOF


@pytest.mark.parametrize("name", ["responses-stream", "responses-nonstream", "messages-stream", "messages-nonstream"])
def test_a_client_that_leaves_frees_its_place(ready: Start, name: str) -> None:
    server = ready()
    data, _ = raw_request(name, **COUNT)
    with socket.create_connection(("127.0.0.1", server.port), 5) as client:
        client.sendall(data)
        endings.await_running(server.port, 1)
        assert exchange(server.port, "get-load").body == b'{"server_load":1}'
    endings.await_running(server.port, 0)
    assert exchange(server.port, "get-load").body == b'{"server_load":0}'
