"""The example deployments: valid for vLLM's command line, and the very same files run against the simulator.

What a script makes of itself is not read from its text: it is run with a command in vLLM's place that tells what it
was given. Flags, parsers and variables are held against those of vLLM 0.32 (`tests/data/vllm-0.32-serve.json`).
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
import yaml

from benchmarks import launch
from benchmarks.pacekeeper import BINARY
from benchmarks.published.stage import await_status_200

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "config" / "examples"
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/engine.sh"))
VLLM = json.loads((ROOT / "tests" / "data" / "vllm-0.32-serve.json").read_text(encoding="utf-8"))
PRESET = {"tiny-cpu": "qwen3-8b-h200"}  # every other example has a preset of its own name
TELLS = "#!{python}\nimport json, os, sys\nprint(json.dumps([sys.argv[1:], dict(os.environ)]))\n"


@dataclass(frozen=True)
class Told:
    """The command line and the environment that a script gave to vLLM."""

    arguments: list[str]
    environ: dict[str, str]

    @property
    def flags(self) -> dict[str, str | None]:
        """Each flag with its value."""
        found: dict[str, str | None] = {}
        words = iter(self.arguments[2:])
        for word in words:
            assert word.startswith("--"), f"a value that no flag takes: {word}"
            assert word in VLLM["flags"], f"vLLM 0.32 has no {word}"
            found[word] = next(words) if VLLM["flags"][word] == "value" else None
        return found


def told(name: str, folder: Path, *arguments: str, **environ: str) -> Told:
    command = folder / "tells"
    command.write_text(TELLS.format(python=sys.executable))
    command.chmod(0o755)
    done = subprocess.run(
        [FOLDER / name / "engine.sh", *arguments],
        env={"PATH": os.environ["PATH"], "VLLM": str(command), **environ},
        check=True,
        capture_output=True,
        text=True,
        timeout=20,
    )
    return Told(*json.loads(done.stdout))


def settings_of(name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((FOLDER / name / "gateway.yaml").read_text(encoding="utf-8"))
    return read


def test_there_is_every_deployment_of_the_product() -> None:
    assert NAMES == ["glm-5-nvfp4", "kimi-k2.5-int4", "kimi-k2.5-nvfp4", "minimax-m2.5-fp8", "tiny-cpu"]


@pytest.mark.parametrize("name", NAMES)
def test_the_configuration_passes_the_check(name: str) -> None:
    done = subprocess.run(
        [BINARY, "check", FOLDER / name / "gateway.yaml"], cwd=ROOT, check=False, capture_output=True, timeout=20
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_vllm_knows_every_flag_parser_and_variable_of_the_script(name: str, tmp_path: Path) -> None:
    it = told(name, tmp_path)
    assert it.arguments[0] == "serve"
    assert it.flags["--reasoning-parser"] in VLLM["reasoning_parsers"]
    assert it.flags["--tool-call-parser"] in VLLM["tool_parsers"]
    assert {"--enable-per-request-metrics", "--enable-auto-tool-choice"} <= set(it.flags)
    named = {variable for variable in it.environ if variable.startswith("VLLM_")}
    assert named
    assert named <= set(VLLM["environment"])


@pytest.mark.parametrize("name", NAMES)
def test_the_script_and_the_configuration_speak_of_the_same_engine(name: str, tmp_path: Path) -> None:
    flags, settings = told(name, tmp_path).flags, settings_of(name)
    [pool] = settings["pools"]
    [backend] = pool["backends"]
    assert pool["models"] == [flags["--served-model-name"]]
    assert backend["url"] == f"http://{flags['--host']}:{flags['--port']}"
    assert settings["clients"]["drain_s"] <= int(flags["--shutdown-timeout"] or 0)
    if seats := flags.get("--max-num-seqs"):
        assert settings["limits"]["in_flight"] == int(seats) + int(flags["--max-num-queued-reqs"] or 0)


@pytest.mark.parametrize("name", NAMES)
def test_port_further_arguments_and_variables_of_the_caller_win(name: str, tmp_path: Path) -> None:
    it = told(name, tmp_path, "--seed", "7", ENGINE_PORT="8123", VLLM_NO_USAGE_STATS="0", NCCL_DEBUG="WARN")
    assert (it.flags["--port"], it.flags["--seed"]) == ("8123", "7")
    assert (it.environ["VLLM_NO_USAGE_STATS"], it.environ["NCCL_DEBUG"]) == ("0", "WARN")


def test_a_misspelt_flag_would_be_found() -> None:
    with pytest.raises(AssertionError, match="has no --max-num-seq"):
        _ = Told(["serve", "m", "--max-num-seq", "4"], {}).flags
    with pytest.raises(AssertionError, match="no flag takes: 4"):
        _ = Told(["serve", "m", "--enforce-eager", "4"], {}).flags


# --- against the simulator ----------------------------------------------------------------------------------------


@contextmanager
def simulated(name: str, folder: Path, *, port: int, **environ: str) -> Iterator[tuple[Popen[bytes], Path]]:
    """The example's own script with the simulator in vLLM's place: the process and its log."""
    words = [
        str(BINARY),
        "simulate-engine",
        "--preset",
        PRESET.get(name, name),
        "--speed",
        "20",
        "--load-speed",
        "20000",
    ]
    given = {"VLLM": " ".join([*words, "--card", str(folder / "card"), "--"]), "ENGINE_PORT": str(port)}
    log = folder / "engine.log"
    command = [str(FOLDER / name / "engine.sh")]
    with launch.running(command, log, core=None, environ={**os.environ, **given, **environ}) as process:
        yield process, log


@contextmanager
def served(name: str, folder: Path, *, engine_port: int) -> Iterator[int]:
    """The gateway with the example's own configuration, other ports and folders; the clients' port."""
    clients, operators = launch.free_ports(2)
    settings = settings_of(name)
    settings["clients"]["listen"], settings["operators"]["listen"] = (
        [f"127.0.0.1:{clients}"],
        [f"127.0.0.1:{operators}"],
    )
    settings["pools"][0]["backends"][0]["url"] = f"http://127.0.0.1:{engine_port}"
    settings |= {"store": {"path": str(folder / "history.db")}, "runtime_dir": str(folder / "run")}
    (folder / "gateway.yaml").write_text(yaml.safe_dump(settings))
    log = folder / "gateway.log"
    with launch.running([str(BINARY), "serve", "--config", str(folder / "gateway.yaml")], log, core=None) as process:
        await_status_200(process, clients, path="/ready", log=log)
        yield clients


def asked(port: int, body: Mapping[str, Any]) -> tuple[http.client.HTTPResponse, list[bytes]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer, [line for line in answer.read().split(b"\n\n") if line]
    finally:
        connection.close()


@pytest.mark.parametrize("name", NAMES)
def test_the_same_files_serve_a_simulated_engine_through_the_gateway(name: str, tmp_path: Path) -> None:
    [port] = launch.free_ports(1)
    settings = settings_of(name)
    [model] = settings["pools"][0]["models"]
    with simulated(name, tmp_path, port=port) as (process, log):
        await_status_200(process, port, path="/health", log=log)
        with served(name, tmp_path, engine_port=port) as clients:
            body = {"model": model, "stream": True, "max_tokens": 64, "ignore_eos": True}
            answer, events = asked(clients, body | {"messages": [{"role": "user", "content": "hello"}]})
    assert answer.status == 200, events
    assert answer.headers["X-Gateway-Backend"] == settings["pools"][0]["backends"][0]["name"]
    assert events[-1] == b"data: [DONE]"
    deltas = [json.loads(event[6:])["choices"][0]["delta"] for event in events[:-1]]
    assert any(delta.get("reasoning") for delta in deltas)
    assert any(delta.get("content") for delta in deltas)
    said = log.read_text()
    assert "SIMULATION" in said
    assert PRESET.get(name) or "Pattern 4" in said


def test_the_simulator_obeys_the_callers_nccl_environment(tmp_path: Path) -> None:
    [port] = launch.free_ports(1)
    with simulated("kimi-k2.5-int4", tmp_path, port=port, NCCL_PROTO="LL, Simple") as (process, log):
        assert process.wait(20) == 1
    assert "NCCL_PROTO" in log.read_text()
