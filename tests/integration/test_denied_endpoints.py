"""Everything that is not on the map, in every spelling that might slip through: none of it reaches a backend.

The witness is the backend's own log, and the number of connections that it accepted.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.core.routing.endpoints import ENDPOINTS
from tests.fakes.backend import ScriptedBackend
from tests.fakes.client import raw_client
from tests.fakes.worker import backend_view, running_worker

pytestmark = pytest.mark.asyncio

DENIED = (
    # of the engine, open to whoever reaches its port
    "/invocations",
    "/scale_elastic_ep",
    "/is_scaling_elastic_ep",
    "/start_profile",
    "/stop_profile",
    "/fault_tolerance/apply",
    "/fault_tolerance/status",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/adapters",
    "/v1/chat/completions/render",
    "/v1/completions/render",
    "/v1/responses/render",
    "/v1/messages/render",
    "/v1/chat/completions/derender",
    "/inference/v1/generate",
    "/inference/v1/abort_requests",
    "/tokenizer_info",
    "/kv_event_sources",
    "/metrics",
    "/load",
    "/ping",
    "/docs",
    "/docs/oauth2-redirect",
    "/redoc",
    "/openapi.json",
    "/static/swagger-ui.css",
    # in dev mode
    "/sleep",
    "/wake_up",
    "/is_sleeping",
    "/release_kv_cache_memory",
    "/collective_rpc",
    "/server_info",
    "/reset_prefix_cache",
    "/reset_mm_cache",
    "/reset_encoder_cache",
    "/pause",
    "/resume",
    "/is_paused",
    "/abort_requests",
    "/init_weight_transfer_engine",
    "/shutdown_weight_transfer_engine",
    "/start_weight_update",
    "/start_draft_weight_update",
    "/update_weights",
    "/finish_weight_update",
    "/update_weight_version",
    "/weight_info",
    "/weight_checker",
    "/get_world_size",
    # of the engine and harmless, but not offered
    "/v1/chat/completions/batch",
    "/cohere/v2/chat",
    "/v2/embed",
    "/v1/realtime",
    "/generative_scoring",
    "/v1/systemone",
    # the operators' and nobody's
    "/admin/v1/status",
    "/admin/v1/lora",
    "/",
    "/v1",
    "/nothing",
)

FRONTS = ("/v1/chat/completions", "/v1/responses/resp_1", "/v1/models", "/health")
"""Paths that are served, as a start for ways out of them."""


def spellings(path: str) -> Iterator[str]:
    """Ways to write ``path`` that a server behind might read as it."""
    yield path
    yield path + "?a=b"
    yield path + "#x"
    yield path + "?/v1/chat/completions"
    yield "/" + path
    yield "/." + path
    yield "/x/.." + path
    yield path + "/."
    yield path + ";a=b"
    yield path + "%00"
    yield path.replace("/", "/%2e/", 1)
    yield path.replace("/", "%2f", 1)
    yield path.replace("/", "\\", 1)
    yield "http://g" + path
    if path != "/":
        yield path + "/"
        yield path[:-1] + f"%{ord(path[-1]):02x}"
        yield path[:-1] + path[-1].upper()
    for front in FRONTS:
        yield front + "/.." * front.count("/") + path
        yield front + "/%2e%2e" * front.count("/") + path
        yield front + path
        yield front + "%2f.." + path
        yield front + ";" + path


SPELLINGS = sorted({spelling for path in DENIED for spelling in spellings(path)})


async def test_the_corpus_is_large_and_holds_nothing_that_is_offered() -> None:
    assert len(SPELLINGS) > 1500
    assert not {spelling.partition("?")[0].partition("#")[0] for spelling in SPELLINGS} & ENDPOINTS.keys()


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
async def test_no_spelling_of_a_denied_path_reaches_a_backend(method: str) -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        async with raw_client(worker.port) as client:
            for spelling in (it for it in SPELLINGS if it.startswith("/")):
                await client.post({"model": "tiny"}, path=spelling, method=method)
                seen = await client.answer()
                assert (seen.status, seen.error["code"]) == (404, "unknown_endpoint"), spelling
        assert (backend.exchanges, backend.unscripted, backend.accepted) == ([], [], 0)
    assert len({record.endpoint for record in worker.records}) == 1, "no path becomes a label"


async def test_what_is_no_path_at_all_is_refused_too() -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        for spelling in (it for it in SPELLINGS if not it.startswith("/")):
            async with raw_client(worker.port) as client:
                await client.post({"model": "tiny"}, path=spelling)
                assert (await client.answer()).status in {400, 404}, spelling
        assert backend.accepted == 0


@pytest.mark.parametrize(
    "path", sorted(path.replace("{id}", "resp_1" if it.owned else "0-" + "a" * 32) for path, it in ENDPOINTS.items())
)
async def test_another_verb_on_an_offered_path_is_a_405_and_reaches_nobody(path: str) -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        async with raw_client(worker.port) as client:
            for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
                await client.post({"model": "tiny"}, path=path, method=method)
                seen = await client.answer()
                assert seen.status == 405
                assert seen.headers["allow"] in {"POST", "GET", "GET, HEAD"}
        assert backend.accepted == 0


@pytest.mark.parametrize("path", sorted(path for path in ENDPOINTS if "{id}" not in path))
async def test_a_served_path_in_another_spelling_is_a_404(path: str) -> None:
    async with ScriptedBackend() as backend, running_worker() as worker:
        worker.serve([backend_view(backend.url)])
        async with raw_client(worker.port) as client:
            for spelling in (
                path + "/",
                "/" + path,
                path.upper(),
                path + "%20",
                path.replace("/", "/./", 1),
                path[:-1] + f"%{ord(path[-1]):02x}",
                path + ";x",
                path + "//",
            ):
                await client.post({"model": "tiny"}, path=spelling)
                assert (await client.answer()).status == 404, spelling
        assert backend.accepted == 0
