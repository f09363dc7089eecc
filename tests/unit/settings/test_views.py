"""Settings as others need them; and that the two sides of a policy have the same names and defaults."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.core.routing.backend import BackendState
from gateway.core.routing.snapshot import HeaderPolicy, LimitPolicy, TimerPolicy, WorkerPolicy
from gateway.settings import parse, to_backends, to_policy, to_pools
from gateway.settings.runtime import Headers, Limits, Timers
from gateway.settings.section import Section

TEXT = """\
pools:
  - {name: p, models: [m], backends: [{name: a, url: "http://x"}, {name: b, url: "unix:/x", api_key_env: K}]}
  - {name: q, backends: [{name: c, url: "https://x", tls_ca: "/x.pem"}]}
timers: {stall_s: 30}
limits: {body_bytes: 1 MiB}
headers: {backend_name: false}
"""
RUNTIME = parse(TEXT, "f.yaml", environ={}, look_at_host=False).runtime


@pytest.mark.parametrize("section, policy", [(Timers, TimerPolicy), (Limits, LimitPolicy), (Headers, HeaderPolicy)])
def test_a_section_and_its_policy_have_the_same_names_and_defaults(section: type[Section], policy: Any) -> None:
    assert section().model_dump() == msgspec.structs.asdict(policy())


def test_the_policy_holds_what_was_configured() -> None:
    assert to_policy(RUNTIME) == WorkerPolicy(
        timers=TimerPolicy(stall_s=30.0),
        limits=LimitPolicy(body_bytes=1024**2),
        headers=HeaderPolicy(backend_name=False),
    )


def test_pools_and_backends_come_in_the_order_of_the_file() -> None:
    assert [(pool.name, pool.models) for pool in to_pools(RUNTIME)] == [("p", ("m",)), ("q", ())]
    views = to_backends(RUNTIME)
    assert [(view.pool, view.name, view.url) for view in views] == [
        ("p", "a", "http://x:80"),
        ("p", "b", "unix:/x"),
        ("q", "c", "https://x:443"),
    ]
    assert (views[1].api_key_env, views[2].tls_ca) == ("K", "/x.pem")
    assert {view.state for view in views} == {BackendState.UNKNOWN}
