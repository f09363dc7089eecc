"""TLS for clients: a whole worker behind a certificate, and that certificate renewed while it serves."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.app.certificate import ServerCertificate
from gateway.errors import ConfigError
from tests.fakes.backend import Script, ScriptedBackend
from tests.fakes.certificates import make_certificate
from tests.fakes.client import RawClient, raw_client
from tests.fakes.setting_stage import Stage
from tests.fakes.worker_shell import running_shell
from tests.integration.test_relay_endings import DONE, HEAD, HELLO, REQUEST, ROLE, STOP, chunk

WHOLE = (HEAD, chunk(ROLE + HELLO + STOP + DONE) + b"0\r\n\r\n")


def stage(folder: Path, certificate: Path, key: Path) -> Stage:
    return Stage(folder, {"clients.tls.certificate": str(certificate), "clients.tls.key": str(key)})


@asynccontextmanager
async def tls_client(port: int, ca: Path) -> AsyncIterator[RawClient]:
    """A client that accepts the one certificate; ``ssl.SSLError`` when it is another."""
    context = ssl.create_default_context(cafile=str(ca))
    context.check_hostname = False
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.transport.abort()


@pytest.mark.asyncio
async def test_a_stream_over_tls_is_the_engines_to_the_byte_and_plain_http_is_no_answer(tmp_path: Path) -> None:
    key, cert = make_certificate(tmp_path)
    scene = stage(tmp_path, cert, key)
    async with ScriptedBackend() as backend, running_shell(scene.installed(), scene.snapshot(backend.url)) as port:
        backend.add(Script(WHOLE))
        async with tls_client(port, cert) as client:
            await client.post(REQUEST)
            seen = await client.answer()
            assert (seen.status, seen.body, seen.whole) == (200, ROLE + HELLO + STOP + DONE, True)
            tls = client.writer.get_extra_info("ssl_object")
            assert tls.version() in ("TLSv1.2", "TLSv1.3")
        async with raw_client(port) as plain:
            await plain.send(b"GET /health HTTP/1.1\r\nHost: g\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                assert await plain.at_end()


@pytest.mark.asyncio
async def test_a_client_that_leaves_frees_its_engine_over_tls_too(tmp_path: Path) -> None:
    key, cert = make_certificate(tmp_path)
    scene = stage(tmp_path, cert, key)
    async with ScriptedBackend() as backend, running_shell(scene.installed(), scene.snapshot(backend.url)) as port:
        backend.add(Script((HEAD, chunk(ROLE), asyncio.Event())))
        async with tls_client(port, cert) as client:
            await client.post(REQUEST)
            await client.until(b"assistant")
        exchange = await backend.exchange(0)
        async with asyncio.timeout(5):
            await exchange.client_closed.wait()


@pytest.mark.asyncio
async def test_a_renewed_certificate_is_given_to_new_connections_and_open_ones_go_on(tmp_path: Path) -> None:
    key, cert = make_certificate(tmp_path)
    new_key, new_cert = make_certificate(tmp_path, name="new-")
    scene = stage(tmp_path, cert, key)
    gate = asyncio.Event()
    async with ScriptedBackend() as backend, running_shell(scene.installed(), scene.snapshot(backend.url)) as port:
        backend.add(Script((HEAD, chunk(ROLE), gate, chunk(HELLO + STOP + DONE) + b"0\r\n\r\n")))
        first = tmp_path / "first.pem"
        first.write_bytes(cert.read_bytes())
        async with tls_client(port, first) as client:
            await client.post(REQUEST)
            await client.until(b"assistant")
            new_key.replace(key)
            new_cert.replace(cert)
            async with asyncio.timeout(10):
                while True:
                    try:
                        async with tls_client(port, cert):
                            break
                    except ssl.SSLError:
                        await asyncio.sleep(0.05)
            gate.set()
            assert (await client.answer()).whole


def test_files_that_do_not_fit_are_told_once_and_the_old_pair_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key, cert = make_certificate(tmp_path)
    other, _ = make_certificate(tmp_path, name="other-")
    pair = ServerCertificate(str(cert), str(key))
    caplog.set_level(logging.INFO, logger="gateway.certificate")
    right = key.read_bytes()
    key.write_bytes(other.read_bytes() + b"\n")
    for _ in range(3):
        pair.renew()
    assert [record.message for record in caplog.records] == ["certificate.refused"]
    key.write_bytes(right)
    pair.renew()
    assert caplog.records[-1].message == "certificate.renewed"
    key.unlink()
    pair.renew()
    assert caplog.records[-1].message == "certificate.refused"


@pytest.mark.parametrize("lacking", ["certificate", "key"])
def test_one_of_the_two_is_not_enough(tmp_path: Path, lacking: str) -> None:
    key, cert = make_certificate(tmp_path)
    given = {"clients.tls.certificate": str(cert), "clients.tls.key": str(key)}
    del given[f"clients.tls.{lacking}"]
    with pytest.raises(ConfigError, match=f"needs a {lacking}"):
        Stage(tmp_path, given).settings()


def test_what_is_wrong_with_the_files_is_said_by_check(tmp_path: Path) -> None:
    key, cert = make_certificate(tmp_path)
    other, _ = make_certificate(tmp_path, name="other-")
    empty = tmp_path / "empty.pem"
    empty.touch()
    for given, words in (
        ((cert, other), "is not the key of"),
        ((empty, key), "no certificate and key in PEM form"),
        ((cert, tmp_path / "nowhere.pem"), "no such file"),
    ):
        with pytest.raises(ConfigError, match=words):
            stage(tmp_path, *given).settings()
