"""A command-line agent (pi) at a terminal, straight to vLLM and through the gateway with a key.

It thinks, calls a tool, sends its result back, thinks again and answers; all of that is on its screen. By each of the
three APIs that it knows.
"""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live.rig import agent, keys
from tests.live.rig.agent import Seen
from tests.live.rig.engine import Engine
from tests.live.rig.gateway import ROOT, Gateway
from tests.live.rig.processes import until
from tests.live.rig.ways import GatewayMaker

PROMPT = "what is the weather in Paris?"
APIS = {"openai-completions": "chat", "openai-responses": "responses", "anthropic-messages": "messages"}


@pytest.fixture(scope="module")
def keyed(start_gateway: GatewayMaker, engine_a: Engine, run_folder: Path) -> Gateway:
    """A gateway whose clients need keys."""
    return start_gateway("agent", [engine_a], runtime=keys.wanted(run_folder, "agent"))


@pytest.fixture(scope="module", params=APIS)
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def key(keyed: Gateway, api: str) -> str:
    return keys.make(keyed, api)


@pytest.fixture(scope="module")
def ask(api: str, run_folder: Path) -> Callable[[str, str], Seen]:
    def ask(url: str, key: str) -> Seen:
        base_url = url if api == "anthropic-messages" else f"{url}/v1"
        # The folder's name is in the prompt: one for all, so that the model says the same.
        folder = run_folder / "agent-home"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return agent.ask(folder, PROMPT, base_url=base_url, api=api, key=key)

    return ask


@pytest.fixture(scope="module")
def seen(ask: Callable[[str, str], Seen], keyed: Gateway, key: str) -> Seen:
    """What was on the agent's screen, and in its notes, after it had asked through the gateway."""
    return ask(keyed.url, key)


def kinds(seen: Seen) -> list[tuple[str, list[str]]]:
    """What each message is made of."""
    return [
        (message["role"], [part["type"] for part in message["content"]])
        for message in seen.messages
        if message["role"] != "system"
    ]


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_the_configuration_is_the_one_that_the_page_for_clients_shows():
    blocks = re.findall(r"```json\n(.*?)```", (ROOT / "docs/clients.md").read_text(), re.DOTALL)
    (shown,) = [json.loads(block) for block in blocks if '"providers"' in block]

    made = agent.models("http://HOST:8080/v1", "openai-completions")
    made["providers"]["pacekeeper"]["models"][0] |= {"id": "my-model", "contextWindow": 131072, "maxTokens": 16384}
    assert shown == made


def test_the_reasoning_of_both_turns_is_on_the_screen(seen: Seen):
    thoughts = [one_line(part["thinking"]) for part in seen.parts("assistant", "thinking")]

    assert len(thoughts) == 2
    assert all(thoughts)
    assert [thought for thought in thoughts if thought not in seen.words] == []


def test_the_tool_is_run_and_its_result_is_on_the_screen(seen: Seen):
    (call,) = seen.parts("assistant", "toolCall")
    (result,) = seen.parts("toolResult", "text")

    assert call["name"] == "get_weather"
    city = call["arguments"]["city"]
    assert result["text"] == f"Sunny in {city}, 21 degrees"
    assert f'get_weather city="{city}" {result["text"]}' in seen.words


def test_the_answer_after_the_tool_s_result_is_on_the_screen(seen: Seen):
    assert [role for role, _ in kinds(seen)] == ["user", "assistant", "toolResult", "assistant"]
    last = seen.messages[-1]
    (answer,) = [one_line(part["text"]) for part in last["content"] if part["type"] == "text"]

    assert last["stopReason"] == "stop"
    assert answer
    assert answer in seen.words


def test_straight_to_the_engine_the_same_is_seen(seen: Seen, ask: Callable[[str, str], Seen], engine_a: Engine):
    straight = ask(engine_a.url, "unused")

    assert kinds(straight) == kinds(seen)
    # The first answer word by word. The second one's prompt is long enough for vLLM to keep a part of it from the run
    # before, and what is computed in other portions may be rounded otherwise.
    for kind, said in [("thinking", "thinking"), ("toolCall", "arguments"), ("text", "text")]:
        assert straight.parts("assistant", kind)[0][said] == seen.parts("assistant", kind)[0][said]


def test_the_gateway_s_records_have_two_answers_with_reasoning(seen: Seen, keyed: Gateway, api: str):
    def records() -> list[dict]:
        rows = keyed.admin("/admin/v1/requests?limit=100")["items"]
        mine = [row["record"] for row in rows if row["record"]["key_id"] == api and row["record"]["method"] == "POST"]
        return sorted(mine, key=lambda record: record["accepted_wall"])

    until(lambda: len(records()) >= 2, "both requests in the history", within_s=10)
    first, second = records()
    assert {first["endpoint"], second["endpoint"]} == {APIS[api]}
    assert [(record["outcome"], record["stream"]) for record in (first, second)] == [("ok", True)] * 2
    assert all(record["summary"]["decode_tps"] > 0 for record in (first, second))
    assert second["summary"]["completion_tokens"] > second["summary"]["reasoning_tokens"] > 0
    if api == "anthropic-messages":
        # vLLM's Messages do not say how many tokens were thinking, and beside a tool call it is not guessed.
        assert first["summary"]["reasoning_tokens"] is None
        assert "tool_calls" in first["summary"]["flags"]
    else:
        assert first["summary"]["completion_tokens"] > first["summary"]["reasoning_tokens"] > 0
    # The second request has the first one's answer and the tool's result in it.
    assert second["summary"]["prompt_tokens"] > first["summary"]["prompt_tokens"]
