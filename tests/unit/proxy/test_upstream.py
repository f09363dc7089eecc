"""Where backends are, as the settings spell it."""

from __future__ import annotations

import pytest

from gateway.proxy.upstream import Target


@pytest.mark.parametrize(
    "url, target, host_header",
    [
        ("http://127.0.0.1:8001", Target("127.0.0.1", 8001, "", tls=False, tls_ca="ca"), b"127.0.0.1:8001"),
        ("http://engine", Target("engine", 80, "", tls=False, tls_ca="ca"), b"engine:80"),
        ("https://engine:8443", Target("engine", 8443, "", tls=True, tls_ca="ca"), b"engine:8443"),
        ("https://[::1]", Target("::1", 443, "", tls=True, tls_ca="ca"), b"[::1]:443"),
        ("unix:/run/engine.sock", Target("localhost", 0, "/run/engine.sock", tls=False, tls_ca=""), b"localhost"),
        ("unix:///run/engine.sock", Target("localhost", 0, "/run/engine.sock", tls=False, tls_ca=""), b"localhost"),
    ],
)
def test_a_url_is_a_target(url: str, target: Target, host_header: bytes) -> None:
    assert Target.of(url, tls_ca="ca") == target
    assert target.host_header == host_header
