"""One look at a backend over real sockets: bounded in time and size, and every failure has its name."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.control.probe import Answer, ProbeClient, ProbeFailed
from gateway.core.routing.evidence import ProbeResult
from tests.fakes.fleets import backend
from tests.fakes.probed_backend import CLOSE, HANG, ProbedBackend, answer, listening

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def client_to(url: str, *, timeout_s: float = 5.0, **given: object) -> AsyncIterator[ProbeClient]:
    config = backend("a", url=url, **given)
    async with ProbeClient(config, environ={"KEY": "s3cret", "BAD": "new\nline"}, timeout_s=timeout_s) as client:
        yield client


async def failed(client: ProbeClient, path: str = "/health", *, max_bytes: int = 1000) -> tuple[ProbeResult, str]:
    with pytest.raises(ProbeFailed) as caught:
        await client.get(path, max_bytes=max_bytes)
    return caught.value.result, caught.value.detail


async def test_an_answer_is_status_and_body_and_the_connection_is_kept() -> None:
    async with listening(ProbedBackend()) as fake, client_to(fake.url) as client:
        assert await client.get("/health", max_bytes=10) == Answer(200, b"")
        assert await client.get("/version", max_bytes=100) == Answer(200, b'{"version": "0.32.0"}')
        assert fake.connections == 1


async def test_connections_are_closed_with_the_client() -> None:
    fake = ProbedBackend()
    async with listening(fake):
        async with client_to(fake.url) as client:
            await client.get("/health", max_bytes=10)
            assert fake.connections == 1
        await fake.until(lambda: fake.connections == 0)


async def test_the_backends_own_key_is_sent_and_no_other() -> None:
    async with listening(ProbedBackend()) as fake:
        async with client_to(fake.url, api_key_env="KEY") as client:
            await client.get("/v1/models", max_bytes=1000)
        assert fake.keys == {"Bearer s3cret"}
        fake.keys.clear()
        for name in ("MISSING", "BAD", ""):
            async with client_to(fake.url, api_key_env=name) as client:
                await client.get("/v1/models", max_bytes=1000)
        assert fake.keys == set()


async def test_a_port_where_nobody_listens_refuses() -> None:
    async with listening(ProbedBackend()) as fake:
        url = fake.url
    async with client_to(url) as client:
        assert await failed(client) == (ProbeResult.REFUSED, "connection refused")


async def test_a_unix_socket_is_asked_and_a_missing_one_refuses(tmp_path: Path) -> None:
    path = str(tmp_path / "engine.sock")
    async with client_to(f"unix:{path}") as client:
        assert (await failed(client))[0] is ProbeResult.REFUSED
    async with listening(ProbedBackend(), path=path) as fake, client_to(fake.url) as client:
        assert (await client.get("/health", max_bytes=10)).status == 200


async def test_a_name_that_does_not_resolve_is_no_refusal() -> None:
    async with client_to("http://no-such-host.invalid:8000") as client:
        result, detail = await failed(client)
    assert result is ProbeResult.UNREACHABLE
    assert detail.startswith("no connection: ")


async def test_silence_ends_at_the_limit_whether_nothing_comes_or_never_the_end() -> None:
    fake = ProbedBackend(raw={"/health": HANG, "/metrics": b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf"})
    async with listening(fake), client_to(fake.url, timeout_s=0.05) as client:
        assert await failed(client) == (ProbeResult.TIMEOUT, "no answer in 0.05 s")
        assert (await failed(client, "/metrics"))[0] is ProbeResult.TIMEOUT


async def test_a_body_over_its_bound_is_not_read_to_the_end() -> None:
    fake = ProbedBackend(raw={"/metrics": answer(body=b"x" * 100_000)})
    async with listening(fake), client_to(fake.url) as client:
        assert await failed(client, "/metrics") == (ProbeResult.GARBLED, "an answer over 1000 bytes")


async def test_a_compressed_bomb_is_bounded_by_what_was_sent() -> None:
    raw = answer(body=b"\x1f\x8b" + b"x" * 50, headers="content-encoding: gzip\r\n")
    fake = ProbedBackend(raw={"/metrics": raw})
    async with listening(fake), client_to(fake.url) as client:
        assert len((await client.get("/metrics", max_bytes=1000)).body) == 52


@pytest.mark.parametrize(
    "raw,result",
    [
        (CLOSE, ProbeResult.UNREACHABLE),
        (b"SSH-2.0-OpenSSH_9\r\n\r\n", ProbeResult.GARBLED),
        (b"HTTP/1.1 200 OK\r\ncontent-length: minus\r\n\r\n", ProbeResult.GARBLED),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 20_000 + b"\r\n\r\n", ProbeResult.GARBLED),
        (b"\x00\x01\x02\x03\r\n\r\n", ProbeResult.GARBLED),
    ],
    ids=["closed", "ssh", "bad length", "long header", "binary"],
)
async def test_what_is_not_http_has_a_name(raw: bytes, result: ProbeResult) -> None:
    fake = ProbedBackend(raw={"/health": raw})
    async with listening(fake), client_to(fake.url) as client:
        assert (await failed(client))[0] is result


async def test_a_body_that_breaks_off_has_a_name() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with client_to(f"http://127.0.0.1:{port}") as client:
            assert (await failed(client))[0] is ProbeResult.GARBLED


async def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    async with listening(ProbedBackend()) as target:
        moved = answer(307, headers=f"location: {target.url}/health\r\n")
        async with listening(ProbedBackend(raw={"/health": moved})) as fake, client_to(fake.url) as client:
            assert (await client.get("/health", max_bytes=10)).status == 307
        assert target.asked.total() == 0


def certificate(folder: Path) -> tuple[ssl.SSLContext, str]:
    """A server's context with a certificate of its own for 127.0.0.1, and that certificate's file."""
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
            "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context, str(cert)


async def test_https_is_verified_against_the_backends_own_authorities(tmp_path: Path) -> None:
    context, cert = certificate(tmp_path)
    async with listening(ProbedBackend(), tls=context) as fake:
        async with client_to(fake.url, tls_ca=cert) as client:
            assert (await client.get("/health", max_bytes=10)).status == 200
        async with client_to(fake.url) as client:
            assert await failed(client) == (
                ProbeResult.UNREACHABLE,
                "no connection: TLS failed, is tls_ca right?",
            )
        async with client_to(fake.url, tls_ca=str(tmp_path / "gone.pem")) as client:
            detail = "no connection: the authorities in tls_ca cannot be read"
            assert await failed(client) == (ProbeResult.UNREACHABLE, detail)
