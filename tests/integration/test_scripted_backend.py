"""The scripted backend does what its scripts say: every other integration test relies on it."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from pathlib import Path

import pytest

from tests.fakes.backend import End, Request, Script, ScriptedBackend, answer, cut
from tests.fakes.recordings import load

pytestmark = pytest.mark.asyncio

GET_HEALTH = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbody"


async def connect(backend: ScriptedBackend) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", backend.port)


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    await writer.wait_closed()


class Reads(asyncio.Protocol):
    """A client that keeps its reads apart, as a stream reader does not."""

    def __init__(self) -> None:
        self.reads: list[bytes] = []
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.reads.append(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set()


async def test_pieces_come_apart_and_the_request_is_kept() -> None:
    async with ScriptedBackend() as backend:
        backend.add(Script(pieces=(b"one", b"two", b"three"), end=End.CLOSE))
        loop = asyncio.get_running_loop()
        transport, client = await loop.create_connection(Reads, "127.0.0.1", backend.port)
        transport.write(POST)
        await client.ended.wait()
        assert client.reads == [b"one", b"two", b"three"]
        exchange = await backend.exchange(0)
        assert (exchange.request.target, exchange.request.body) == ("/v1/chat/completions", b"body")
        assert exchange.request.headers["content-length"] == "4"
        assert exchange.played.is_set()
        assert exchange.sent_bytes == 11


async def test_an_event_holds_the_rest_back() -> None:
    gate = asyncio.Event()
    async with ScriptedBackend() as backend:
        backend.add(Script(pieces=(b"one", gate, b"two"), end=End.CLOSE))
        reader, writer = await connect(backend)
        writer.write(POST)
        assert await reader.read(100) == b"one"
        assert not (await backend.exchange(0)).played.is_set()
        gate.set()
        assert await reader.read() == b"two"
        await close(writer)


async def test_a_kept_connection_serves_request_after_request() -> None:
    async with ScriptedBackend() as backend:
        backend.add(Script(pieces=(b"one",)), Script(pieces=(b"two",), end=End.CLOSE))
        reader, writer = await connect(backend)
        writer.write(POST + POST)
        assert await reader.read() == b"onetwo"
        assert [exchange.connection for exchange in backend.exchanges] == [0, 0]
        assert backend.accepted == 1
        await close(writer)


async def test_a_reset_is_a_reset() -> None:
    async with ScriptedBackend() as backend:
        backend.add(Script(pieces=(b"one",), end=End.RESET))
        reader, writer = await connect(backend)
        writer.write(POST)
        assert await reader.read(100) == b"one"
        with pytest.raises(ConnectionResetError):
            await reader.read()
        with pytest.raises(ConnectionResetError):
            await close(writer)


async def test_a_hang_lasts_until_the_client_closes_and_says_when() -> None:
    async with ScriptedBackend() as backend:
        backend.add(Script(pieces=(), end=End.HANG))
        _, writer = await connect(backend)
        writer.write(POST)
        exchange = await backend.exchange(0)
        await exchange.played.wait()
        assert exchange.closed_at is None
        await close(writer)
        await exchange.client_closed.wait()
        assert exchange.closed_at is not None
        assert exchange.closed_at >= exchange.began_at


async def test_a_client_that_leaves_ends_a_waiting_script() -> None:
    async with ScriptedBackend() as backend:
        backend.add(Script(pieces=(asyncio.Event(), b"never")))
        _, writer = await connect(backend)
        writer.write(POST)
        exchange = await backend.exchange(0)
        await close(writer)
        await exchange.client_closed.wait()
        assert not exchange.played.is_set()


async def test_a_client_that_does_not_read_holds_the_script() -> None:
    async with ScriptedBackend() as backend:
        piece = bytes(1 << 20)
        backend.add(Script(pieces=(piece,) * 64))
        _, writer = await connect(backend)
        writer.write(POST)
        exchange = await backend.exchange(0)
        await exchange.blocked.wait()
        assert exchange.sent_bytes < 64 << 20
        await close(writer)


async def test_an_early_script_does_not_wait_for_the_body() -> None:
    async with ScriptedBackend() as backend:
        backend.add(Script(pieces=(b"no",), end=End.CLOSE, early=True))
        reader, writer = await connect(backend)
        writer.write(POST[:-4])
        assert await reader.read() == b"no"
        await close(writer)


async def test_monitoring_is_answered_without_a_script() -> None:
    async with ScriptedBackend() as backend:
        backend.models = ("a", "b")
        reader, writer = await connect(backend)
        for target, expected in [("/health", b"200"), ("/v1/models", b'"id":"b"'), ("/metrics", b"vllm:")]:
            writer.write(GET_HEALTH.replace(b"/health", target.encode()))
            assert expected in await reader.read(10_000)
        assert [request.target for request in backend.fixed_requests] == ["/health", "/v1/models", "/metrics"]
        assert backend.exchanges == []
        await close(writer)


async def test_an_answerer_sees_the_whole_request_and_an_unscripted_one_is_told_on() -> None:
    def echo(request: Request) -> Script:
        return Script(pieces=(answer(request.body),))

    async with ScriptedBackend(answerer=echo) as backend:
        reader, writer = await connect(backend)
        writer.write(POST)
        assert (await reader.read(1000)).endswith(b"\r\n\r\nbody")
        await close(writer)
    async with ScriptedBackend() as backend:
        reader, writer = await connect(backend)
        writer.write(POST)
        assert b" 501 " in await reader.read(1000)
        assert len(backend.unscripted) == 1
        await close(writer)


async def test_a_stopped_backend_refuses_and_a_restarted_one_is_where_it_was() -> None:
    async with ScriptedBackend() as backend:
        url = backend.url
        await backend.stop()
        with pytest.raises(ConnectionRefusedError):
            await connect(backend)
        await backend.start()
        assert backend.url == url
        _, writer = await connect(backend)
        await close(writer)


async def test_a_recording_is_replayed_byte_for_byte() -> None:
    recording = load("vllm-0.32-cpu/sigkill-stream")
    whole = recording.with_head().raw
    async with ScriptedBackend() as backend:
        backend.add(Script.of_recording(recording, cuts=range(0, len(whole), 37)))
        reader, writer = await connect(backend)
        writer.write(POST)
        assert await reader.read() == whole
        await close(writer)


async def test_a_unix_socket_serves_the_same(tmp_path: Path) -> None:
    async with ScriptedBackend(unix_path=tmp_path / "b.sock") as backend:
        assert backend.url == f"unix:{tmp_path}/b.sock"
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "b.sock"))
        writer.write(GET_HEALTH)
        assert b" 200 " in await reader.read(1000)
        await close(writer)


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for localhost and its key."""
    made, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=localhost"
    subprocess.run([*command.split(), "-keyout", str(key), "-out", str(made)], check=True, capture_output=True)
    return made, key


async def test_tls_serves_the_same(certificate: tuple[Path, Path]) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    trusting = ssl.create_default_context(cafile=certificate[0])
    async with ScriptedBackend(tls=context) as backend:
        backend.add(Script(pieces=(b"one",), end=End.CLOSE))
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", backend.port, ssl=trusting, server_hostname="localhost"
        )
        writer.write(POST)
        assert await reader.read() == b"one"
        await close(writer)
        assert backend.url.startswith("https://")


async def test_cuts_are_positions_between_bytes() -> None:
    assert cut(b"abcdef", [0, 4, 2, 2, 6, 99]) == [b"ab", b"cd", b"ef"]
