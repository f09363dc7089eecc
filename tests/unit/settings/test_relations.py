"""What must hold between settings; each relation is found although other values are bad."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.settings.faults import spell
from gateway.settings.relations import broken


def backend(name: str, url: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "url": url, **more}


def pool(name: str, *backends: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "backends": list(backends), **more}


A = backend("a", "http://127.0.0.1:8001")
B = backend("b", "http://127.0.0.1:8002")


def found(data: dict[str, Any]) -> list[tuple[str, str]]:
    return [(spell(item.path), item.message) for item in broken(data)]


@pytest.mark.parametrize(
    "data, path, says",
    [
        ({"clients": {"listen": ["0.0.0.0:8080"]}}, "clients.listen[0]", "can be reached"),
        ({"clients": {"listen": ["127.0.0.1:8081"]}}, "operators.listen[0]", "port of the clients"),
        ({"operators": {"listen": ["[::1]:8080"]}}, "operators.listen[0]", "port 8080 is a port of the clients"),
        ({"clients": {"listen": ["[::1]:1", "[::1]:1"]}}, "clients.listen[1]", "the same address as clients.listen[0]"),
        (
            {"clients": {"listen": ["unix:/x"]}, "operators": {"listen": ["unix:/x"]}},
            "operators.listen[0]",
            "the same address as clients.listen[0]",
        ),
        ({"timers": {"stall_s": 700}}, "timers.silent_max_s", "at least timers.stall_s (700)"),
        ({"timers": {"first_event_s": 1}}, "timers.first_event_s", "at least timers.connect_s (2)"),
        ({"timers": {"total_s": 1}}, "timers.total_s", "more than timers.connect_s (2), or 0"),
        ({"probes": {"scrape_s": 4}}, "timers.pulse_fresh_s", "twice probes.scrape_s (4)"),
        ({"limits": {"receiving_bytes": "1 MiB"}}, "limits.receiving_bytes", "at least limits.body_bytes"),
        ({"limits": {"hold_bytes": "1 MiB"}}, "limits.hold_bytes", "at least limits.event_bytes"),
        ({"runtime_dir": "x" * 120}, "runtime_dir", "too deep"),
        ({"pools": [pool("p", A), pool("p", B)]}, "pools[1].name", "the same pool as pools[0].name"),
        ({"pools": [pool("p", A, A | {"url": "http://x"})]}, "pools[0].backends[1].name", "the same backend"),
        ({"pools": [pool("p", A), pool("q", A | {"name": "c"})]}, "pools[1].backends[0].url", "the same url"),
        (
            {"pools": [pool("p", A, models=["m"]), pool("q", B, models=["n", "m"])]},
            "pools[1].models[1]",
            "the same model",
        ),
        (
            {"pools": [pool("p", A, models=["m"], lora=[{"name": "m"}])]},
            "pools[0].lora[0].name",
            "the same model as pools[0].models[0]",
        ),
        (
            {"pools": [pool("p", A, aliases=[{"name": "x", "model": "m"}]), pool("q", B, lora=[{"name": "x"}])]},
            "pools[1].lora[0].name",
            "the same model as pools[0].aliases[0].name",
        ),
        (
            {"pools": [pool("p", A, lora=[{"name": "x"}, {"name": "x"}])]},
            "pools[0].lora[1].name",
            "the same model as pools[0].lora[0].name",
        ),
        ({"pools": [pool("p", A, min_available=2)]}, "pools[0].min_available", "more than the pool's 1 backend"),
        ({"pools": [pool("p", backend("a", "http://localhost:8080"))]}, "pools[0].backends[0].url", "gateway's own"),
        (
            {"pools": [pool("p", A, reasoning={"think_opened": True})]},
            "pools[0].reasoning.think_opened",
            "only with think_tags",
        ),
        (
            {"pools": [pool("p", A, reasoning={"think_tags": True, "models": [{"model": "m", "think_opened": True}]})]},
            "pools[0].reasoning.models[0].think_opened",
            "only with think_tags",
        ),
        (
            {"pools": [pool("p", A, reasoning={"models": [{"model": "m"}, {"model": "m"}]})]},
            "pools[0].reasoning.models[1].model",
            "the same model as pools[0].reasoning.models[0].model",
        ),
        ({"pools": [pool("p", A | {"tls_ca": "x.pem"})]}, "pools[0].backends[0].tls_ca", "only an https backend"),
    ],
)
def test_a_broken_relation_is_found(data: dict[str, Any], path: str, says: str) -> None:
    faults = found(data)
    assert [where for where, _ in faults] == [path]
    assert says in faults[0][1]


def test_an_own_unix_socket_as_backend_is_found() -> None:
    data = {"clients": {"listen": ["unix:/x"]}, "pools": [pool("p", backend("a", "unix:///x"))]}
    assert found(data) == [("pools[0].backends[0].url", "this is the gateway's own address in clients.listen")]


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"pools": [pool("p", A, B, min_available=2, models=["m"])]},
        {"clients": {"listen": ["127.0.0.1:1", "127.0.0.1:2", "unix:/x"]}},
        {"operators": {"listen": ["0.0.0.0:8081"]}},
        {"clients": {"listen": ["unix:/x"]}, "operators": {"listen": ["unix:/y"]}},
        {"timers": {"total_s": 0}},
        {"pools": [pool("p", A, models=["m"], lora=[{"name": "l"}], aliases=[{"name": "x", "model": "l"}])]},
        {
            "pools": [
                pool("p", A, models=["m", ["odd"]], lora=["odd", {"name": 3}], aliases=[{"name": "x", "model": "m"}])
            ]
        },
        {"pools": [pool("p", backend("a", "https://x", tls_ca="x.pem"))]},
    ],
)
def test_what_fits_is_let_alone(data: dict[str, Any]) -> None:
    assert found(data) == []


def test_bad_neighbours_hide_no_relation() -> None:
    data = {
        "timers": {"stall_s": "x"},
        "pools": ["x", pool("p", A | {"driver": 3}), pool("p", A | {"url": 3}), {"name": 4}],
    }
    assert found(data) == [
        ("pools[2].name", "the same pool as pools[1].name"),
        ("pools[2].backends[0].name", "the same backend as pools[1].backends[0].name"),
    ]
