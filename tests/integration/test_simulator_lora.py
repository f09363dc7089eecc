"""A simulated engine that loads adapters, asked over HTTP: its routes, its models, the name in its answers."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.targets import PATIENCE_S, SimulatedServer

ALLOWED = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}


@pytest.fixture(scope="module")
def tunable() -> Iterator[SimulatedServer]:
    server = SimulatedServer("--enable-lora", environment=ALLOWED)
    server.await_ready()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def plain() -> Iterator[SimulatedServer]:
    server = SimulatedServer("--enable-lora")
    server.await_ready()
    yield server
    server.kill()


def ask(server: SimulatedServer, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}{path}", data, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if answer.headers["Content-Type"] else text.decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def chat(server: SimulatedServer, model: str) -> tuple[int, Any]:
    body = {"model": model, "max_tokens": 4, "messages": [{"role": "user", "content": "x"}]}
    return ask(server, "/v1/chat/completions", body)


def test_an_adapter_answers_under_its_name_while_it_is_loaded(tunable: SimulatedServer) -> None:
    assert chat(tunable, "poet")[0] == 404
    status, told = ask(tunable, "/v1/load_lora_adapter", {"lora_name": "poet", "lora_path": "/adapters/poet"})
    assert (status, told) == (200, "Success: LoRA adapter 'poet' added successfully.")
    _, listed = ask(tunable, "/v1/models")
    shown = [(it["id"], it["parent"], it["root"], it["max_model_len"]) for it in listed["data"]]
    assert shown == [("tiny", None, "./tiny-model", 2048), ("poet", "tiny", "/adapters/poet", None)]
    for model in ("poet", "tiny"):
        status, answer = chat(tunable, model)
        assert (status, answer["model"]) == (200, model)
    assert ask(tunable, "/v1/unload_lora_adapter", {"lora_name": "poet"})[0] == 200
    status, refused = chat(tunable, "poet")
    assert (status, refused["error"]["message"]) == (404, "The model `poet` does not exist. Valid aliases: tiny.")


def test_without_leave_the_routes_are_not_there(plain: SimulatedServer) -> None:
    for path in ("/v1/load_lora_adapter", "/v1/unload_lora_adapter"):
        assert ask(plain, path, {"lora_name": "poet", "lora_path": "/p"}) == (404, {"detail": "Not Found"})
