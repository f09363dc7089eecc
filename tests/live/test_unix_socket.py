"""A real engine that listens on a Unix socket and asks for a key which clients do not know."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.live.rig import wire
from tests.live.rig.engine import START_S, Engine
from tests.live.rig.gateway import Gateway
from tests.live.rig.processes import until

KEY = "the-engine-s-own"
SERVING = "Application startup complete"


@pytest.fixture(scope="module")
def locked(run_folder: Path) -> Iterator[Gateway]:
    """A gateway that knows the key, in front of such an engine; it waits for the engine to come up."""
    with tempfile.TemporaryDirectory() as short:  # the path of a socket has 107 bytes at most
        socket = Path(short) / "engine.sock"
        engine = Engine("unix", run_folder, "--uds", str(socket), "--api-key", KEY)
        backend = {"name": "locked", "url": f"unix:{socket}", "api_key_env": "LIVE_ENGINE_KEY"}
        gateway = Gateway(run_folder / "gateway-unix", [backend], env={"LIVE_ENGINE_KEY": KEY})
        try:
            engine.start()
            # Its socket is there long before anybody listens on it, and only its log says when.
            until(
                lambda: SERVING in engine.process.log.read_text() or engine.process.exit_code() is not None,
                "the engine behind its socket",
                within_s=START_S,
                poll_s=0.1,
            )
            gateway.start()
            yield gateway
        finally:
            code = gateway.end()
            engine.end()
        assert code == 0


def test_the_engine_is_served_and_gets_its_own_key_instead_of_the_clients(locked: Gateway):
    with openai.OpenAI(base_url=f"{locked.url}/v1", api_key="not-the-engine-s", max_retries=0, timeout=30) as client:
        assert [model.id for model in client.models.list()] == ["tiny"]
        chunks = list(client.chat.completions.create(**wire.chat(), stream=True))
        whole = client.chat.completions.create(**wire.chat(max_tokens=8))

    assert chunks[-1].choices[0].finish_reason == "stop"
    assert whole.usage.completion_tokens == 8


def test_the_key_stands_in_no_log_and_no_admin_answer(locked: Gateway):
    with wire.Call(locked.port, wire.CHAT, wire.chat(max_tokens=4)) as call:
        call.read()
    locked.settled(call.header("x-request-id") or "")

    shown = "".join(str(locked.admin(f"/admin/v1/{page}")) for page in ("status", "backends", "requests"))
    assert KEY not in shown
    assert KEY not in locked.process.log.read_text()
