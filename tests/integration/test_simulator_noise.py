"""Modes of starts and lasting steps of pace, reached from the command line of a simulated engine."""

from __future__ import annotations

import json
import urllib.request

from tests.conformance.targets import SimulatedServer

MODES = "modes=[{share: 0.5, factor: 1.0}, {share: 0.5, factor: 4.0}]"
TOKENS = 60
CALM = ("--warm", "--noise", "step_cv=0", "--noise", "level_cv=0")


def generation_ms(server: SimulatedServer, *, tokens: int = TOKENS, n: int = 1) -> float:
    """What the engine itself says that an answer took after its first token."""
    body = {"model": "tiny", "prompt": "hello", "max_tokens": tokens, "ignore_eos": True, "n": n}
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}/v1/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        metrics = json.load(answer)["metrics"]
    return 0.0 if n > 1 else float(metrics["generation_time_ms"])


def paces(*options: str, seed: int, loads: bool = False) -> tuple[float, float]:
    """Generation times of one start, the second after a load when there is one."""
    server = SimulatedServer("--enable-per-request-metrics", options=(*CALM, *options), seed=seed)
    try:
        server.await_ready()
        before = generation_ms(server)
        if loads:
            generation_ms(server, n=4, tokens=200)
        return before, generation_ms(server)
    finally:
        server.kill()


def test_starts_come_up_in_two_modes_over_seeds_and_keep_theirs() -> None:
    found = [paces("--noise", MODES, seed=seed) for seed in range(1, 6)]
    quickest = min(before for before, _ in found)
    slow = [before > 2 * quickest for before, _ in found]
    assert True in slow
    assert False in slow
    assert [after > 2 * quickest for _, after in found] == slow


def test_a_load_leaves_a_lasting_step_behind() -> None:
    options = (
        "state_chance=1", "state_step=0.6", "load_event_streams=4", "load_event_s=0.2",
    )  # fmt: skip
    before, after = paces(*(word for option in options for word in ("--noise", option)), seed=1, loads=True)
    assert after > 1.3 * before or after < 0.7 * before
