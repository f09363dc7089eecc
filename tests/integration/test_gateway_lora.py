"""LoRA adapters through the whole gateway with two workers: orders to every backend, what clients get, restarts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.client import Answer
from tests.fakes.gateway_process import GatewayProcess, connection, gateway, get
from tests.fakes.lora_engine import NOT_ENABLED, LoraEngine, lora_engines
from tests.fakes.paced_engine import SECRETS

pytestmark = pytest.mark.asyncio

ADAPTER = {"name": "poet", "path": "/adapters/poet"}
PROBES = {"health_s": 0.5, "timeout_s": 5}


def pool(urls: dict[str, str], *, lora: Iterable[dict[str, Any]] = (ADAPTER,), **more: Any) -> list[dict[str, Any]]:
    backends = [{"name": name, "url": url, "api_key_env": "ENGINE_KEY"} for name, url in urls.items()]
    return [{"name": "main", "lora": list(lora), "backends": backends, **more}]


@asynccontextmanager
async def served(folder: Path, *engines: LoraEngine, **more: Any) -> AsyncIterator[GatewayProcess]:
    """A gateway with two workers before these engines, all of them serving."""
    async with lora_engines(*engines) as urls:
        pools = pool(urls, **more)
        async with gateway(folder, urls, workers=2, probes=PROBES, pools=pools) as running:
            await running.until(lambda: all_serve(running), "all engines serve")
            yield running


async def all_serve(running: GatewayProcess) -> bool:
    return all(state == "serving" for state, _ in (await running.states()).values())


async def order(running: GatewayProcess, what: str, *, name: str = "poet", body: bytes = b"") -> tuple[int, Any]:
    """POST an order as an operator; (status, body)."""
    token = (running.runtime_dir / "admin.token").read_text().strip()
    async with connection(running.operators) as client:
        head = (
            f"POST /admin/v1/lora/main/{name}/{what} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        await client.send(head.encode() + body)
        answer = await client.answer()
        return answer.status, json.loads(answer.body)


async def asked(running: GatewayProcess, model: str = "poet") -> Answer:
    """One request on a fresh connection, so that either worker may get it."""
    async with connection(running.clients) as client:
        await client.post({"model": model, "messages": [{"role": "user", "content": SECRETS["prompt"]}]})
        return await client.answer()


async def listed(running: GatewayProcess) -> dict[str, Any]:
    body = json.loads((await get(running.clients, "/v1/models")).body)
    return {card["id"]: card for card in body["data"]}


async def served_by_both(running: GatewayProcess, model: str = "poet", *, status: int = 200, after: int = 0) -> bool:
    """Whether workers of both slots answer so, and did from ``after`` on; one request a look."""
    seen = await asked(running, model)
    wanted = {event["slot"] for event in running.events("request.settled", after=after, status=str(status))}
    return seen.status == status and wanted == {0, 1}


def results(body: dict[str, Any]) -> dict[str, str]:
    return {it["backend"]: it["result"] for it in body["backends"]}


async def test_an_adapter_is_loaded_everywhere_served_under_its_name_and_unloaded(tmp_path: Path) -> None:
    engines = LoraEngine(), LoraEngine()
    async with served(tmp_path, *engines) as running:
        unknown = (await asked(running)).body, (await asked(running, "nobody")).body
        assert unknown[0].replace(b"poet", b"nobody") == unknown[1], "one that is not wanted is like any unknown one"

        status, body = await order(running, "load")
        assert (status, body["complete"], body["wanted"]) == (200, True, True)
        assert results(body) == {"a": "loaded", "b": "loaded"}
        for engine in engines:
            assert engine.loads == [{"lora_name": "poet", "lora_path": "/adapters/poet"}]
            assert engine.keys == [f"Bearer {SECRETS['key']}"]
        await running.until(lambda: served_by_both(running), "both workers serve it")
        assert "poet" in {*engines[0].served, *engines[1].served}
        card = (await listed(running))["poet"]
        assert (card["parent"], card["root"]) == ("tiny", "/adapters/poet")
        change = await running.event("operator.change", action="lora.load")
        assert change["details"] == ["pool main: poet is loaded at all 2 backends of the pool"]

        status, body = await order(running, "load")
        assert (status, results(body)) == (200, {"a": "already_loaded", "b": "already_loaded"})
        assert [len(engine.loads) for engine in engines] == [1, 1], "nobody was asked for what it has"

        after = running.now
        status, body = await order(running, "unload")
        assert (status, results(body)) == (200, {"a": "unloaded", "b": "unloaded"})
        await running.until(lambda: served_by_both(running, status=404, after=after), "no worker serves it")
        assert json.loads((await asked(running)).body)["error"]["code"] == "model_not_found"
        assert set(await listed(running)) == {"tiny"}
        await running.event("operator.change", action="lora.unload")


async def test_a_partial_failure_says_which_and_why_and_only_those_that_have_it_get_requests(tmp_path: Path) -> None:
    able, closed, plain = LoraEngine(), LoraEngine(updates=False), LoraEngine(refusal=NOT_ENABLED)
    async with served(tmp_path, able, closed, plain) as running:
        status, body = await order(running, "load")
        assert (status, body["complete"]) == (207, False)
        assert results(body) == {"a": "loaded", "b": "refused", "c": "refused"}
        why = {it["backend"]: it["detail"] for it in body["backends"]}
        assert "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1" in why["b"]
        assert why["c"] == NOT_ENABLED.rstrip(".")
        for _ in range(12):
            await running.until(lambda: served_by_both(running), "it is served")
        assert able.served.count("poet") >= 12
        assert (closed.served, plain.served) == ([], [])
        (item,) = (await running.admin("/admin/v1/lora"))["items"]
        assert [it["loaded"] for it in item["backends"]] == [True, False, False]
        assert item["backends"][1]["detail"] == why["b"]

        plain.refusal = ""  # it is asked again, by and by
        await running.event("adapter.loaded", backend="c")
        assert plain.loaded == {"poet": "/adapters/poet"}


async def test_an_order_that_nobody_carries_out_is_502_and_clients_get_503_until_one_can(tmp_path: Path) -> None:
    engine = LoraEngine(refusal=NOT_ENABLED)
    async with served(tmp_path, engine) as running:
        status, body = await order(running, "load")
        assert (status, results(body)) == (502, {"a": "refused"})
        await running.until(lambda: served_by_both(running, status=503), "it is wanted, and nobody has it")
        engine.refusal = ""
        await running.until(lambda: served_by_both(running), "it is served")


async def test_a_backend_that_restarts_gets_it_back_and_so_does_one_that_joins(tmp_path: Path) -> None:
    first, second, third = LoraEngine(), LoraEngine(), LoraEngine()
    async with lora_engines(third) as more, served(tmp_path, first, second) as running:
        assert (await order(running, "load"))[0] == 200
        await running.event("adapter.loaded", backend="a")  # told after the order was answered
        after = running.now
        await first.die()
        await running.event("backend.state", after=after, backend="a", state="ejected")
        await first.rise()
        await running.event("adapter.loaded", after=after, backend="a")
        assert first.loaded == {"poet": "/adapters/poet"}

        after = running.now
        urls = {"a": first.backend.url, "b": second.backend.url, "c": more["a"]}
        running.configure(urls, pools=pool(urls))
        token = (running.runtime_dir / "admin.token").read_text().strip()
        async with connection(running.operators) as client:
            head = f"POST /admin/v1/config/reload HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
            await client.send(head.encode())
            assert (await client.answer()).status == 200
        await running.event("adapter.loaded", after=after, backend="c")
        assert third.loaded == {"poet": "/adapters/poet"}


async def test_orders_outlive_control_and_a_backend_that_is_away(tmp_path: Path) -> None:
    first, second = LoraEngine(), LoraEngine()
    lora = [{**ADAPTER, "load": True}, {"name": "other", "path": "/adapters/other"}]
    async with served(tmp_path, first, second, lora=lora) as running:
        for name in "ab":
            await running.event("adapter.loaded", backend=name, adapter="poet")  # wanted from the start
        after = running.now
        await second.backend.stop()
        second.backend.drop_connections()
        await running.event("backend.state", after=after, backend="b", state="ejected")
        status, body = await order(running, "unload")
        assert (status, results(body)) == (207, {"a": "unloaded", "b": "unreachable"})
        assert (await order(running, "load", name="other"))[0] == 207
        after = running.now
        await running.kill("control")
        await running.event("control.started", after=after)
        await second.backend.start()
        await running.event("adapter.unloaded", after=after, backend="b", adapter="poet")
        await running.event("adapter.loaded", after=after, backend="b", adapter="other")
        assert (first.loaded, second.loaded) == ({"other": "/adapters/other"},) * 2
        await running.until(lambda: served_by_both(running, status=404), "what was unloaded stays so")


async def test_a_path_comes_from_the_configuration_alone(tmp_path: Path) -> None:
    engine = LoraEngine()
    async with served(tmp_path, engine) as running:
        path = b'{"lora_name":"poet","lora_path":"/etc"}'
        status, body = await order(running, "load", body=path)
        assert (status, body["error"]["code"]) == (400, "bad_request")
        assert (await order(running, "load?lora_path=/etc"))[0] == 400
        assert (await order(running, "load", name="stranger"))[0] == 404
        async with connection(running.clients) as client:
            for target in ("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/adapters"):
                head = f"POST {target} HTTP/1.1\r\nHost: g\r\nContent-Type: application/json\r\n"
                await client.send(f"{head}Content-Length: {len(path)}\r\n\r\n".encode() + path)
                assert (await client.answer()).status == 404
        assert engine.orders == []
        refused = partial(running.events, "operator.change", action="lora.load", result="refused")
        await running.until(lambda: len(refused()) == 2, "both are in the audit trail")
