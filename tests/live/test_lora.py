"""LoRA adapters on a real vLLM: loaded and unloaded by an operator's command, used by a real client under their names.

One engine may load adapters, and asks for a key; another was started without (`engine_a`), and says so.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.live.rig import wire
from tests.live.rig.adapter import make_adapter
from tests.live.rig.engine import Engine
from tests.live.rig.gateway import Gateway, command
from tests.live.rig.processes import until

KEY = "the-engine-s-own"
ALLOWED = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
WITHIN_S = 30.0
ORDER_S = 120.0


@pytest.fixture(scope="module")
def tunable(run_folder: Path) -> Iterator[Engine]:
    """An engine that may load adapters of rank 8."""
    arguments = ("--enable-lora", "--max-loras", "2", "--max-lora-rank", "8", "--api-key", KEY)
    engine = Engine("tunable", run_folder, *arguments, env=ALLOWED)
    try:
        engine.start()
        engine.wait()
        yield engine
    finally:
        engine.end()


@pytest.fixture(scope="module")
def tuned(run_folder: Path, tunable: Engine, engine_a: Engine) -> Iterator[Gateway]:
    """A gateway with two workers: pool `tuned` has the engine that may, pool `plain` the one that may not."""
    made = {
        "poet": make_adapter(run_folder / "adapters" / "poet"),
        "large": make_adapter(run_folder / "adapters" / "large", rank=16),
        "missing": run_folder / "adapters" / "missing",
    }
    backend = {"name": "tunable", "url": tunable.url, "api_key_env": "LIVE_ENGINE_KEY"}
    plain = {"name": "plain", "url": engine_a.url}
    pools = [
        {
            "name": "tuned",
            "lora": [{"name": name, "path": str(path)} for name, path in made.items()],
            "backends": [backend],
        },
        {"name": "plain", "lora": [{"name": "stranger", "path": str(made["poet"])}], "backends": [plain]},
    ]
    gateway = Gateway(
        run_folder / "gateway-lora", [], runtime={"pools": pools, "workers": 2}, env={"LIVE_ENGINE_KEY": KEY}
    )
    gateway.start()
    yield gateway
    assert gateway.end() == 0


@pytest.fixture
def client(tuned: Gateway) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{tuned.url}/v1", api_key="unused", max_retries=0, timeout=60) as made:
        yield made


def lora(gateway: Gateway, *arguments: str) -> tuple[int, Any]:
    """`pacekeeper lora ...` as an operator types it: exit code and JSON answer."""
    done = subprocess.run(
        [*command(), "lora", *arguments, "--config", str(gateway.folder / "gateway.yaml"), "--json"],
        capture_output=True,
        check=False,
        timeout=ORDER_S,
    )
    return done.returncode, json.loads(done.stdout or done.stderr)


def said(outcome: Any) -> tuple[str, str]:
    (told,) = outcome["backends"]
    return told["result"], told["detail"]


def names(client: openai.OpenAI) -> set[str]:
    return {model.id for model in client.models.list()}


def answer(client: openai.OpenAI, model: str) -> Any:
    return client.chat.completions.create(**(wire.chat(max_tokens=24) | {"model": model}))


def text(completion: Any) -> str:
    message = completion.choices[0].message
    return f"{getattr(message, 'reasoning', None)}|{message.content}"


def test_an_adapter_is_loaded_answers_under_its_name_and_is_unknown_after_it_is_unloaded(tuned, client, tunable):
    with pytest.raises(openai.NotFoundError):
        answer(client, "poet")
    code, outcome = lora(tuned, "load", "poet")
    assert (code, said(outcome)) == (0, ("loaded", ""))
    until(lambda: "poet" in names(client), "the adapter listed by a worker", within_s=WITHIN_S)
    until(lambda: served(tuned), "the adapter served by both workers", within_s=WITHIN_S)
    card = next(model for model in client.models.list() if model.id == "poet")
    assert card.parent == "tiny"
    tuned_answer, plain_answer = answer(client, "poet"), answer(client, "tiny")
    assert (tuned_answer.model, plain_answer.model) == ("poet", "tiny")
    assert text(tuned_answer) != text(plain_answer), "the adapter's weights count"

    assert said(lora(tuned, "load", "poet")[1]) == ("already_loaded", "")
    assert said(lora(tuned, "load", "poet", "--reload")[1]) == ("reloaded", "")

    # A stream that is open while its adapter is unloaded goes on to its end.
    with wire.Call(
        tuned.port,
        wire.CHAT,
        wire.chat("count please", max_tokens=300, ignore_eos=True, stream=True) | {"model": "poet"},
    ) as call:
        events = call.events()
        next(events)
        code, outcome = lora(tuned, "unload", "poet")
        assert (code, said(outcome)) == (0, ("unloaded", ""))
        rest = list(events)
    assert rest[-1].data == wire.DONE
    assert rest[-2].json()["choices"][0]["finish_reason"] == "length"

    until(lambda: unknown(tuned), "the adapter unknown to both workers", within_s=WITHIN_S)
    with pytest.raises(openai.NotFoundError) as caught:
        answer(client, "poet")
    assert caught.value.code == "model_not_found"
    assert "`poet` does not exist" in caught.value.message
    assert "poet" not in names(client)
    _, listed = wire.get(tunable.port, "/v1/models", headers={"Authorization": f"Bearer {KEY}"})
    assert [model["id"] for model in json.loads(listed)["data"]] == ["tiny"]


def statuses(gateway: Gateway) -> list[tuple[int, Any]]:
    """Status and body of some requests for the adapter on fresh connections, which go to either worker."""
    seen = []
    for _ in range(8):
        with wire.Call(gateway.port, wire.CHAT, wire.chat(max_tokens=1) | {"model": "poet"}) as call:
            seen.append((call.status, call.json()))
    return seen


def served(gateway: Gateway) -> bool:
    return all(status == 200 for status, _ in statuses(gateway))


def unknown(gateway: Gateway) -> bool:
    """Whether it is the gateway that says so, to everybody."""
    return all(status == 404 and body["error"]["code"] == "model_not_found" for status, body in statuses(gateway))


@pytest.mark.parametrize(
    "name, words",
    [
        ("large", "LoRA rank 16 is greater than max_lora_rank 8"),
        ("missing", "No adapter found"),
        ("stranger", "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"),
    ],
)
def test_what_an_engine_does_not_load_is_told_in_its_own_words(tuned, name: str, words: str):
    code, outcome = lora(tuned, "load", name)
    assert code == 1
    result, detail = said(outcome)
    assert result == "refused"
    assert words in detail
    assert words in outcome["summary"]
    (report,) = [it for it in lora(tuned, "list")[1]["items"] if it["name"] == name]
    assert (report["wanted"], report["backends"][0]["loaded"]) == (True, False)
    code, outcome = lora(tuned, "unload", name)
    assert (code, said(outcome)[0]) == (0, "not_loaded")


def test_an_engine_that_is_started_again_gets_its_adapter_back(tuned, client, tunable):
    assert lora(tuned, "load", "poet")[0] == 0
    tunable.kill()
    tunable.start()
    tunable.wait()

    def back() -> bool:
        (report,) = [it for it in lora(tuned, "list")[1]["items"] if it["name"] == "poet"]
        return report["backends"][0]["loaded"] and report["backends"][0]["state"] == "serving"

    until(back, "the adapter loaded again", within_s=60, poll_s=0.5)
    until(lambda: served(tuned), "the adapter served by both workers", within_s=WITHIN_S)
    assert answer(client, "poet").model == "poet"
    assert lora(tuned, "unload", "poet")[0] == 0


def test_the_engine_s_key_stands_in_no_log_and_every_order_does(tuned):
    log = tuned.process.log.read_text()
    assert KEY not in log
    assert '"action":"lora.load"' in log.replace(" ", "")
