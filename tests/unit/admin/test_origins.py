import pytest

from gateway.admin.origins import Origins

LOOPBACK = Origins(["127.0.0.1:8081", "unix:/run/pacekeeper/admin.sock"])
V6 = Origins(["[fd00::5]:8081"])
EVERYWHERE = Origins(["0.0.0.0:8081"], ["Gateway.Example."])


@pytest.mark.parametrize(
    "origins,host",
    [
        (LOOPBACK, "127.0.0.1:8081"),
        (LOOPBACK, "127.0.0.1"),
        (LOOPBACK, "localhost:8081"),
        (LOOPBACK, "LOCALHOST."),
        (LOOPBACK, "localhost:9000"),  # a tunnel
        (LOOPBACK, "[::1]:8081"),
        (V6, "[fd00::5]:8081"),
        (V6, "[FD00::5]"),
        (EVERYWHERE, "10.1.2.3:8081"),
        (EVERYWHERE, "[fd00::9]:8081"),
        (EVERYWHERE, "gateway.example:8081"),
    ],
)
def test_our_own_addresses_are_welcome(origins: Origins, host: str) -> None:
    assert origins.refusal(host, None) == ""


@pytest.mark.parametrize(
    "origins,host",
    [
        (LOOPBACK, None),
        (LOOPBACK, ""),
        (LOOPBACK, "evil.example:8081"),
        (LOOPBACK, "localhost.evil.example"),
        (LOOPBACK, "127.0.0.1.evil.example"),
        (LOOPBACK, "10.1.2.3:8081"),
        (LOOPBACK, "[fd00::5"),
        (LOOPBACK, "user@localhost"),
        (LOOPBACK, "gateway.example"),
        (V6, "[fd00::6]:8081"),
        (EVERYWHERE, "evil.example"),
        (EVERYWHERE, "0x7f000001"),
    ],
)
def test_a_name_that_is_not_ours_is_refused(origins: Origins, host: str | None) -> None:
    assert "Host" in origins.refusal(host, None)


@pytest.mark.parametrize("origin", ["http://localhost:8081", "HTTP://LOCALHOST:8081", "https://localhost:8081"])
def test_our_own_pages_are_welcome(origin: str) -> None:
    assert LOOPBACK.refusal("localhost:8081", origin) == ""


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://evil.example",
        "http://localhost",
        "http://localhost:3000",
        "http://127.0.0.1:8081",
        "file://localhost:8081",
        "localhost:8081",
        "http://localhost:8081.evil.example",
        "http://localhost:8081/",
    ],
)
def test_pages_of_other_sites_are_refused(origin: str) -> None:
    assert "Origin" in LOOPBACK.refusal("localhost:8081", origin)
