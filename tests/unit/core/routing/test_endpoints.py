"""The endpoint map: default deny, constants only."""

from __future__ import annotations

from gateway.core.routing.endpoints import ENDPOINTS, Serves


def test_names_and_paths_are_unique_and_match() -> None:
    assert all(path == endpoint.path for path, endpoint in ENDPOINTS.items())
    assert len({e.name for e in ENDPOINTS.values()}) == len(ENDPOINTS)


def test_what_the_engine_serves_is_post_only_and_has_a_dialect() -> None:
    for endpoint in ENDPOINTS.values():
        if endpoint.serves is Serves.ENGINE:
            assert endpoint.methods == {"POST"}
            assert endpoint.dialect is not None
            assert endpoint.upstream_path == endpoint.path.encode()


def test_what_vllm_leaves_open_is_not_on_the_map() -> None:
    denied = {"/metrics", "/invocations", "/scale_elastic_ep", "/collective_rpc", "/sleep", "/pause", "/docs", "/load"}
    assert denied.isdisjoint(ENDPOINTS)
