"""The example deployments and the real vLLM: it takes their command lines, and the tiny one is started as it stands."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.integration.test_examples import NAMES, VLLM, settings_of, told
from tests.live.rig import wire
from tests.live.rig.engine import START_S as ENGINE_START_S
from tests.live.rig.gateway import ROOT, START_S, command
from tests.live.rig.processes import Process, free_port, until

VENV = Path(os.environ.get("LIVE_VLLM_VENV") or ROOT / ".live/vllm")
SCRIPT = ROOT / "tests/live/engine/vllm_cli.py"


def vllm_cli(what: str, lines: object = None) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [VENV / "bin/python", SCRIPT, what],
        input=json.dumps(lines),
        env=environ | {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"},
        check=False,
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_the_kept_list_of_flags_is_that_of_the_installed_vllm():
    done = vllm_cli("catalogue")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout[done.stdout.index("{\n") :]) == VLLM


def test_vllm_reads_the_command_line_of_every_example(tmp_path: Path):
    lines = [told(name, tmp_path).arguments for name in NAMES]
    done = vllm_cli("read", lines)
    assert done.returncode == 0, done.stderr
    read = json.loads(done.stdout[done.stdout.index("[\n") :])
    assert [it["served_model_name"] for it in read] == [str(settings_of(name)["pools"][0]["models"]) for name in NAMES]
    assert [it["port"] for it in read] == [8001] * len(NAMES)


@pytest.fixture
def tiny(run_folder: Path) -> Iterator[tuple[Process, int]]:
    """The tiny example's engine, started by its own script, and its port."""
    port = free_port()
    script = ROOT / "config/examples/tiny-cpu/engine.sh"
    environ = {"VLLM": str(VENV / "bin/vllm"), "ENGINE_PORT": str(port)}
    engine = Process([str(script)], log=run_folder / "engine-example.log", cwd=ROOT, env=environ)
    yield engine, port
    engine.end()


@pytest.fixture
def gateway_port(run_folder: Path, tiny: tuple[Process, int]) -> Iterator[int]:
    """The clients' port of a gateway with the tiny example's configuration, but for ports and folders."""
    engine, engine_port = tiny
    folder = run_folder / "gateway-example"
    folder.mkdir()
    port, operators_port = free_port(), free_port()
    settings = settings_of("tiny-cpu")
    settings["clients"]["listen"], settings["operators"]["listen"] = (
        [f"127.0.0.1:{port}"],
        [f"127.0.0.1:{operators_port}"],
    )
    settings["pools"][0]["backends"][0]["url"] = f"http://127.0.0.1:{engine_port}"
    settings |= {"store": {"path": str(folder / "history.db")}, "runtime_dir": str(folder / "run")}
    (folder / "gateway.yaml").write_text(yaml.safe_dump(settings))

    def up_or_dead() -> bool:
        return engine.exit_code() is not None or wire.answers(engine_port, "/health")

    until(up_or_dead, "the tiny example serving", within_s=ENGINE_START_S, poll_s=0.1)
    assert engine.exit_code() is None, engine.tail()
    gateway = Process(
        [*command(), "serve", "--config", "gateway.yaml"], log=run_folder / "gateway-example.log", cwd=folder
    )
    try:
        until(lambda: wire.answers(port, "/ready"), "the example's gateway ready", within_s=START_S)
        yield port
    finally:
        assert gateway.end() == 0, gateway.tail()


def test_the_tiny_example_answers_through_its_gateway(gateway_port: int):
    with wire.Call(gateway_port, wire.CHAT, wire.chat("count please", max_tokens=200, stream=True)) as call:
        assert call.status == 200, call.read()
        events = [event.data for event in call.events()]
        assert call.header("x-gateway-backend") == "tiny"
    assert events[-1] == wire.DONE
    deltas = [json.loads(event)["choices"][0]["delta"] for event in events[:-1] if json.loads(event)["choices"]]
    assert any(delta.get("reasoning") for delta in deltas)
    assert any(delta.get("content") for delta in deltas)
