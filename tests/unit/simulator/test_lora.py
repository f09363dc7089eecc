"""LoRA adapters of a simulated engine: vLLM's words for everything that it does not do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.simulator.asked import Limits, adapter_of, check_model
from gateway.simulator.lora import Adapters, may_update
from gateway.simulator.refusals import Refused
from gateway.simulator.routes import Route

JSON = b"application/json"
LOAD, UNLOAD = Route.LOAD_ADAPTER, Route.UNLOAD_ADAPTER


def change(adapters: Adapters, route: Route, content_type: bytes = JSON, **given: Any) -> str:
    return adapters.change(route, json.dumps(given).encode(), content_type).decode()


def test_adapters_come_and_go() -> None:
    adapters = Adapters("tiny", runs=True)
    assert change(adapters, LOAD, lora_name="ad", lora_path="/a") == "Success: LoRA adapter 'ad' added successfully."
    assert change(adapters, LOAD, lora_name="ad", lora_path="/b", load_inplace=True).startswith("Success")
    assert adapters.loaded == {"ad": "/b"}
    assert change(adapters, UNLOAD, lora_name="ad") == "Success: LoRA adapter 'ad' removed successfully."
    assert adapters.loaded == {}


@pytest.mark.parametrize(
    "route, given, status, words",
    [
        (LOAD, {"lora_name": "ad", "lora_path": "/a"}, 400, "The lora adapter 'ad' has already been loaded."),
        (LOAD, {"lora_name": "tiny", "lora_path": "/a"}, 400, "The lora adapter 'tiny' conflicts with a served"),
        (LOAD, {"lora_name": "", "lora_path": ""}, 400, "Both 'lora_name' and 'lora_path' must be provided."),
        (LOAD, {"lora_name": "x"}, 400, "1 validation error:\n  {'type': 'missing', 'loc': 'body.lora_path'"),
        (LOAD, {"lora_name": 5, "lora_path": "/a"}, 400, "'type': 'string_type', 'loc': 'body.lora_name'"),
        (UNLOAD, {"lora_name": "nope"}, 404, "The lora adapter 'nope' cannot be found."),
        (UNLOAD, {"lora_name": ""}, 400, "'lora_name' needs to be provided to unload a LoRA adapter."),
    ],
)
def test_what_is_not_in_order_is_refused_in_its_words(
    route: Route, given: dict[str, Any], status: int, words: str
) -> None:
    adapters = Adapters("tiny", runs=True)
    change(adapters, LOAD, lora_name="ad", lora_path="/a")
    with pytest.raises(Refused) as caught:
        change(adapters, route, **given)
    assert caught.value.status == status
    assert words in json.loads(caught.value.body)["error"]["message"]


def test_another_content_type_is_refused() -> None:
    with pytest.raises(Refused) as caught:
        change(Adapters("tiny", runs=True), LOAD, b"text/plain", lora_name="x")
    assert b"Only 'application/json' is allowed" in caught.value.body


def test_an_engine_that_was_not_started_for_adapters_says_how() -> None:
    with pytest.raises(Refused) as caught:
        change(Adapters("tiny", runs=False), LOAD, lora_name="ad", lora_path="/a")
    assert json.loads(caught.value.body)["error"] == {
        "message": "Call to add_lora method failed: LoRA is not enabled. Use --enable-lora to enable LoRA.",
        "type": "InternalServerError",
        "param": None,
        "code": 500,
    }


@pytest.mark.parametrize("value, expected", [("1", True), ("true", True), ("0", False), ("", False), (None, False)])
def test_the_routes_depend_on_the_environment(value: str | None, *, expected: bool) -> None:
    name = "VLLM_ALLOW_RUNTIME_LORA_UPDATING"
    assert may_update({} if value is None else {name: value}) is expected


def test_a_request_may_name_an_adapter_and_answers_carry_its_name() -> None:
    limits = Limits("tiny", 2048, adapters={"ad": "/a"})
    for model in ("tiny", "ad", None):
        check_model({"model": model}, limits)
    assert (adapter_of({"model": "ad"}, limits), adapter_of({"model": "tiny"}, limits)) == ("ad", "")
    for unknown in ("other", ["ad"]):
        with pytest.raises(Refused):
            check_model({"model": unknown}, limits)
