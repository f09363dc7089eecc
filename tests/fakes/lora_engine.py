"""An engine that loads LoRA adapters at run time, as vLLM 0.32 does: same routes, statuses and words.

What it has loaded is reported at `/v1/models`; a request for a model that it has not gets vLLM's 404.  Steered by
plain attributes; it keeps every order that it got.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from tests.fakes.backend import Request, Script, ScriptedBackend, answer

LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
NO_ROUTE = answer(b'{"detail":"Not Found"}', status=404)
NOT_ENABLED = "Call to add_lora method failed: LoRA is not enabled. Use --enable-lora to enable LoRA."


def error(status: int, kind: str, message: str, *, param: str | None = None) -> bytes:
    told = {"error": {"message": message, "type": kind, "param": param, "code": status}}
    return answer(json.dumps(told).encode(), status=status)


class LoraEngine:
    """``updates``: whether the routes are there; ``refusal``: words of a 500 that every load gets."""

    def __init__(
        self, *, updates: bool = True, refusal: str = "", model: str = "tiny", loaded: dict[str, str] | None = None
    ) -> None:
        self.backend = ScriptedBackend(answerer=self._answer)
        self.updates = updates
        self.refusal = refusal
        self.model = model
        self.loaded: dict[str, str] = loaded or {}
        self.orders: list[tuple[str, dict[str, Any]]] = []
        self.keys: list[str] = []  # of each order
        self.served: list[str] = []  # models of the requests that it answered
        self.report()

    def report(self) -> None:
        """Have `/v1/models` say what is loaded now."""
        usual = {"object": "model", "created": 1, "owned_by": "vllm"}
        cards = [{"id": self.model, **usual, "root": "./tiny-model", "parent": None, "max_model_len": 2048}]
        for name, path in self.loaded.items():
            cards.append({"id": name, **usual, "root": path, "parent": self.model, "max_model_len": None})
        self.backend.fixed["/v1/models"] = answer(json.dumps({"object": "list", "data": cards}).encode())

    async def die(self) -> None:
        """Nobody listens any more, and what was loaded is gone."""
        await self.backend.stop()
        self.backend.drop_connections(reset=True)
        self.loaded.clear()
        self.report()

    async def rise(self) -> None:
        """Another process listens at the same place."""
        await self.backend.start()

    @property
    def loads(self) -> list[dict[str, Any]]:
        """The bodies of the orders to load."""
        return [body for path, body in self.orders if path == LOAD]

    def _answer(self, asked: Request) -> Script:
        body = json.loads(asked.body)
        if asked.target in {LOAD, UNLOAD}:
            if not self.updates:
                return Script((NO_ROUTE,))
            self.orders.append((asked.target, body))
            self.keys.append(asked.headers.get("authorization", ""))
            told = self._load(body) if asked.target == LOAD else self._unload(body)
            self.report()
            return Script((told,))
        model = body["model"]
        if model not in {self.model, *self.loaded}:
            words = f"The model `{model}` does not exist. Valid aliases: {self.model}."
            return Script((error(404, "NotFoundError", words, param="model"),))
        self.served.append(model)
        good = {"model": model, "choices": [{"index": 0, "finish_reason": "stop", "message": {}}]}
        return Script((answer(json.dumps(good).encode()),))

    def _load(self, body: dict[str, Any]) -> bytes:
        name = body["lora_name"]
        if self.refusal:
            return error(500, "InternalServerError", self.refusal)
        if name in self.loaded and not body.get("load_inplace"):
            return error(400, "InvalidUserInput", f"The lora adapter '{name}' has already been loaded.")
        self.loaded[name] = body["lora_path"]
        return answer(f"Success: LoRA adapter '{name}' added successfully.".encode())

    def _unload(self, body: dict[str, Any]) -> bytes:
        name = body["lora_name"]
        if name not in self.loaded:
            return error(404, "NotFoundError", f"The lora adapter '{name}' cannot be found.")
        del self.loaded[name]
        return answer(f"Success: LoRA adapter '{name}' removed successfully.".encode())


@asynccontextmanager
async def lora_engines(*engines: LoraEngine) -> AsyncIterator[dict[str, str]]:
    """Have them listen; gives their urls by the names a, b, c ..."""
    async with AsyncExitStack() as listening:
        for engine in engines:
            await listening.enter_async_context(engine.backend)
        yield {name: engine.backend.url for name, engine in zip("abcdef", engines, strict=False)}
