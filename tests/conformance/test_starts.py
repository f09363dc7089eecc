"""What was found about starts, one finding a check: the logs of real starts, simulated ones, and a real one here.

A log line in a recording is `{"m": seconds since the start, "s": text}`; a carriage return ended a line too.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from gateway.simulator.loadlog import load_lines
from gateway.simulator.spec import Defaults, read_spec
from tests.conformance.servers import Lender, SimulatedServers
from tests.conformance.targets import COMMON, VARIANTS, SimulatedServer
from tests.fakes.presets import preset

DATA = Path(__file__).parents[1] / "data" / "starts"
SERVING = ("h200-8b-cold", "h200-8b-warm", "h200-mla-mp", "cpu")

# The lines of a start that a reader of logs goes by, in their order. Those that not every start has stand in brackets:
# on processors nothing is compiled or captured (eager), and dummy weights have no shards.
ALWAYS = (
    r"Resolved architecture: \w+", r"Initializing a V1 LLM engine \(v", r"world_size=\d+ rank=0",
    r"Starting to load model|Loading model from scratch", r"[CG]PU KV cache size: [\d,]+ tokens",
    r"init engine \(profile, create kv cache, warmup model\) took [\d.]+ s", r"Starting vLLM server on http://",
    r"Started server process \[\d+\]", r"Application startup complete\.",
)  # fmt: skip
WEIGHTS = (
    r"Starting to load model|Loading model from scratch", r"Loading safetensors checkpoint shards:\s+0% Completed \| 0/\d+",
    r"Loading safetensors checkpoint shards: 100% Completed \| (\d+)/\1", r"Loading weights took [\d.]+ seconds",
    r"[CG]PU KV cache size",
)  # fmt: skip
COMPILED = (
    r"Starting to load model|Loading model from scratch",
    r"Model loading took [\d.]+ GiB (?:memory )?and [\d.]+ seconds", r"Dynamo bytecode transform time: [\d.]+ s",
    r"torch.compile took [\d.]+ s in total", r"GPU KV cache size: [\d,]+ tokens",
    r"Capturing CUDA graphs \((?:mixed prefill-decode, )?PIECEWISE\):\s+0%\|",
    r"Capturing CUDA graphs \((?:decode, )?FULL\): 100%\|", r"Graph capturing finished in \d+ secs",
    r"Kernel JIT monitor activated", r"init engine \(profile, create kv cache, warmup model\) took [\d.]+ s",
)  # fmt: skip
FULL_CARD = r"ValueError: Free memory on device cuda:0 \([\d.]+/[\d.]+ GiB\) on startup is less than desired GPU memory utilization"


@dataclass(frozen=True, slots=True)
class Start:
    """A start as its log tells it: (seconds, line), what /health said and when, and the exit code."""

    lines: list[tuple[float, str]]
    health: list[tuple[float, str]]
    exit_code: int | None

    @property
    def text(self) -> str:
        return "\n".join(line for _, line in self.lines)

    def at_s(self, mark: str) -> float:
        return next(at_s for at_s, line in self.lines if re.search(mark, line))


def recorded(name: str) -> Start:
    lines, health, code = [], [], None
    for text in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(text)
        if "s" in row:
            lines.append((row["m"], row["s"]))
        elif "health" in row:
            health.append((row["m"], str(row["health"])))
        elif "exit" in row:
            code = row["exit"]
    return Start(lines, health, code)


def simulated_start() -> Start:
    """The lines of a simulated start of the 8B model, at the speed of the real one."""
    h200 = preset("qwen3-8b-h200")
    spec = read_spec(COMMON, Defaults(model="m", version="0.32.0", max_model_len=2048, gpus=1))
    lines = load_lines(h200, spec, url="http://127.0.0.1:8000", api_pid=1)
    return Start([(line.at_s, line.text) for line in lines], [], None)


def check_order(text: str, marks: tuple[str, ...]) -> None:
    at = 0
    for mark in marks:
        found = re.search(mark, text[at:])
        assert found, mark
        at += found.start()


@pytest.mark.parametrize("name", SERVING)
def test_the_marks_of_a_start_come_in_their_order_recorded(name: str) -> None:
    text = recorded(name).text
    check_order(text, ALWAYS)
    if name != "h200-mla-mp":  # dummy weights
        check_order(text, WEIGHTS)
    if name != "cpu":  # eager
        check_order(text, COMPILED)


def test_the_marks_of_a_start_come_in_their_order(servers: Lender) -> None:
    text = servers.shared().log_text()
    check_order(text, ALWAYS)
    check_order(text, WEIGHTS)
    if servers.name == "simulator":  # of a card; the real one here computes on processors
        check_order(text, COMPILED)
        assert "SIMULATION" in text.splitlines()[0]


def test_a_line_names_its_process_and_the_place_in_the_source(servers: Lender) -> None:
    shape = r"^\((?:APIServer|EngineCore) pid=\d+\) INFO \d\d-\d\d \d\d:\d\d:\d\d \[\w+\.py:\d+\] "
    assert re.search(shape, recorded("h200-8b-cold").text, re.MULTILINE)
    assert re.search(shape, recorded("cpu").text, re.MULTILINE)
    assert re.search(shape, servers.shared().log_text(), re.MULTILINE)


def test_a_progress_bar_names_no_process_and_its_updates_end_no_line(servers: Lender) -> None:
    shape = r"^Loading safetensors checkpoint shards: 100% Completed"
    assert re.search(shape, recorded("h200-8b-cold").text, re.MULTILINE)
    assert re.search(shape, recorded("cpu").text, re.MULTILINE)
    log = servers.shared().log_bytes()
    assert re.search(rb"\rLoading safetensors checkpoint shards: 100% Completed", log)


@pytest.mark.parametrize("name", SERVING)
def test_the_port_refuses_until_the_very_end_recorded(name: str) -> None:
    start = recorded(name)
    assert [saw for _, saw in start.health] == ["ConnectionRefusedError", "200"]
    assert 0 <= start.health[-1][0] - start.at_s("Application startup complete") < 0.2


def test_weights_are_a_small_part_of_a_start() -> None:
    for start in (recorded("h200-8b-cold"), simulated_start()):
        weights_s = start.at_s("Loading weights took") - start.at_s(r"shards:\s+0%")
        assert 1 < weights_s < 0.05 * start.at_s("Application startup complete")


def silences(start: Start) -> list[str]:
    """The lines before which nothing came for more than 10 s."""
    instants = [(0.0, ""), *start.lines]
    return [after for (at_s, _), (after_s, after) in pairwise(instants) if after_s - at_s > 10]


def test_a_start_is_silent_while_it_imports_inspects_and_warms() -> None:
    """Imports in each process; the model's inspection, once an architecture; before the JIT monitor's line."""
    cold = silences(recorded("h200-8b-cold"))
    assert len(cold) == 4
    for line, mark in zip(cold, ("api_utils.py", "Resolved", "Initializing a V1", "JIT monitor"), strict=True):
        assert mark in line
    warm = silences(recorded("h200-8b-warm"))
    assert not any("Resolved" in line for line in warm)
    assert len(silences(recorded("h200-mla-mp"))) >= 4  # a Worker imports too, and there is no wait for the monitor
    assert not any("JIT monitor" in line for line in silences(recorded("h200-mla-mp")))
    ours = silences(simulated_start())
    assert len(ours) >= 3
    assert any("Initializing a V1" in line for line in ours)
    assert any("JIT monitor" in line for line in ours)


def test_a_warm_start_compiles_in_a_fifth_of_the_time_recorded() -> None:
    cold, warm = recorded("h200-8b-cold"), recorded("h200-8b-warm")
    assert warm.health[-1][0] < 0.6 * cold.health[-1][0]
    took = [float(re.findall(r"torch.compile took ([\d.]+) s", start.text)[0]) for start in (cold, warm)]
    assert took[1] < took[0] / 5


def test_a_start_under_the_mp_executor_has_a_worker_that_says_what_engine_core_says_else_recorded() -> None:
    assert re.search(r"\(Worker pid=\d+\) INFO .*world_size=1 rank=0", recorded("h200-mla-mp").text)
    assert re.search(r"\(EngineCore pid=\d+\) INFO .*world_size=1 rank=0", recorded("h200-8b-cold").text)


@pytest.mark.parametrize("name", [*SERVING, "h200-rust", "h200-cancelled"])
def test_one_gpu_makes_no_communicator_and_no_line_of_nccl_recorded(name: str) -> None:
    assert "NCCL INFO" not in recorded(name).text


def test_one_gpu_makes_no_communicator_and_no_line_of_nccl(simulated: SimulatedServers) -> None:
    assert "NCCL" not in simulated.shared().log_text()


def test_the_rust_front_end_colours_its_lines_even_in_a_file_recorded() -> None:
    assert "\x1b[0;36m(RustFrontend pid=" in recorded("h200-rust").text
    assert "\x1b[" not in recorded("h200-8b-cold").text


def test_a_full_card_is_found_late_and_ends_the_start_with_code_1_recorded() -> None:
    start = recorded("h200-full-card")
    assert re.search(FULL_CARD, start.text)
    assert start.at_s(FULL_CARD) > 45
    assert re.search(r"\(APIServer pid=\d+\) RuntimeError: Engine core initialization failed", start.text)
    assert start.exit_code == 1
    assert [saw for _, saw in start.health] == ["ConnectionRefusedError"]


def test_a_full_card_ends_a_start_with_code_1(simulated: SimulatedServers) -> None:
    first = simulated.own()
    second = SimulatedServer(*VARIANTS["base"], card=first.card)
    try:
        assert second.wait(within_s=10) == 1
        assert re.search(FULL_CARD, second.log_text())
        assert re.search(r"\(APIServer pid=\d+\) .*RuntimeError: Engine core initialization failed", second.log_text())
        assert not second.answers()
    finally:
        second.kill()


def test_a_start_that_was_told_to_stop_serves_all_the_same_recorded() -> None:
    """SIGTERM came in the 42nd second; what was killed later was killed with -9."""
    start = recorded("h200-cancelled")
    assert start.health[-1][1] == "200"
    assert start.health[-1][0] > 42
    check_order(start.text, ALWAYS)
    assert start.exit_code == -9
