"""Two engines behind one gateway: both work, one alone carries on, and nobody notices which one answers."""

import openai
import pytest

from tests.live.rig import wire
from tests.live.rig.crowd import at_once
from tests.live.rig.engine import Engine
from tests.live.rig.gateway import Gateway
from tests.live.rig.processes import until
from tests.live.rig.ways import GatewayMaker


@pytest.fixture(scope="module")
def pair(start_gateway: GatewayMaker, engine_a: Engine, fleet: dict[str, Engine]) -> Gateway:
    fleet["engine_b"].whole()
    gateway = start_gateway("pair", [engine_a, fleet["engine_b"]])
    until(lambda: states(gateway) == {"a": "serving", "b": "serving"}, "both engines serving", within_s=10)
    return gateway


def states(gateway: Gateway) -> dict[str, str]:
    return {backend["name"]: backend["state"] for backend in gateway.admin("/admin/v1/backends")["items"]}


def answered_by(gateway: Gateway) -> str:
    """One short request; the name of the engine that answered, as the gateway's header says."""
    with wire.Call(gateway.port, wire.CHAT, wire.chat("count please", max_tokens=40, stream=True)) as call:
        assert call.status == 200, call.read()
        assert [event.data for event in call.events()][-1] == wire.DONE
        return call.header("x-gateway-backend") or ""


def test_both_engines_get_their_share_of_concurrent_requests(pair: Gateway, engine_a: Engine, engine_b: Engine):
    before = [engine.generated_tokens() for engine in (engine_a, engine_b)]
    names = at_once(lambda _: answered_by(pair), range(32), abreast=4)

    assert {name: names.count(name) >= 8 for name in ("a", "b")} == {"a": True, "b": True}
    assert len(names) == names.count("a") + names.count("b")
    after = [engine.generated_tokens() for engine in (engine_a, engine_b)]
    assert [b - a for a, b in zip(before, after, strict=True)] == [40 * names.count("a"), 40 * names.count("b")]


def test_the_model_is_listed_once(pair: Gateway):
    with openai.OpenAI(base_url=f"{pair.url}/v1", api_key="unused") as client:
        assert [model.id for model in client.models.list()] == ["tiny"]


def test_when_one_engine_dies_no_new_request_fails(pair: Gateway, engine_b: Engine):
    """Its port refuses at once, so nothing of a request was accepted there and the other engine may have it."""
    engine_b.kill()
    engine_b.process.sweep()
    names = at_once(lambda _: answered_by(pair), range(24), abreast=4)

    assert set(names) == {"a"}
    until(lambda: states(pair)["b"] != "serving", "the dead engine out of the rotation", within_s=10)


def test_an_engine_that_is_back_gets_requests_again(pair: Gateway, engine_b: Engine):
    until(lambda: states(pair)["b"] == "serving", "the engine in the rotation again", within_s=10)
    names = at_once(lambda _: answered_by(pair), range(16), abreast=4)

    assert set(names) == {"a", "b"}


def test_the_command_line_shows_both(pair: Gateway, engine_b: Engine):
    until(lambda: states(pair)["b"] == "serving", "the engine in the rotation again", within_s=10)
    listed = pair.run("backends", "list")["items"]

    assert {row["name"]: row["state"] for row in listed} == {"a": "serving", "b": "serving"}
