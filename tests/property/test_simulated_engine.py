"""Whatever is submitted, aborted and injected: every request ends once, usage is exact, time does not go back."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.simulator.drift import Drift, DriftKind
from gateway.simulator.engine import SimEngine
from gateway.simulator.presets import Preset
from gateway.simulator.request import Emission, SimRequest
from tests.fakes.presets import preset

PRESETS = [preset(name) for name in ("kimi-k2.5-int4", "glm-5-nvfp4", "qwen3-8b-h200")]
KINDS = [kind for kind in DriftKind if kind not in {DriftKind.CRASH, DriftKind.HANG}]

requests = st.builds(
    SimRequest,
    prompt_tokens=st.integers(1, 30_000),
    max_tokens=st.integers(1, 60),
    ignore_eos=st.booleans(),
    stream=st.booleans(),
    n=st.integers(1, 3),
    reasoning_share=st.sampled_from([None, 0.0, 0.3, 1.0]),
    topic=st.sampled_from(["", "count", "emoji", "ponder"]),
    tools=st.sampled_from([(), ("f",)]),
    seed=st.integers(0, 9),
)
drifts = st.builds(
    Drift,
    kind=st.sampled_from(KINDS),
    magnitude=st.sampled_from([0.0, 0.07, 0.5]),
    readable=st.booleans(),
    ramp_s=st.just(2.0),
)
deeds = st.lists(st.one_of(requests, drifts, st.integers(0, 12)), max_size=30)


@settings(max_examples=80, deadline=None)
@given(
    deployment=st.sampled_from(PRESETS),
    arguments=st.sampled_from([[], ["--max-num-seqs=2"], ["--stream-interval=5"], ["--max-num-batched-tokens=512"]]),
    todo=deeds,
    steps=st.integers(0, 7),
)
def test_every_choice_ends_once_with_exact_counts(
    deployment: Preset, arguments: list[str], todo: list[SimRequest | Drift | int], steps: int
) -> None:
    machine = SimEngine(deployment, seed=3, environment={}, arguments=arguments, started_at=0.0)
    ledger = Ledger()
    for deed in todo:
        match deed:
            case SimRequest():
                ledger.submitted[machine.submit(deed, ledger.now)] = deed
            case Drift():
                machine.inject(deed, ledger.now)
            case number:
                machine.abort(number, ledger.now)
                ledger.aborted |= {number} & ledger.submitted.keys()
        for _ in range(steps):
            ledger.advance(machine)
    machine.inject(
        Drift(kind=DriftKind.FOREIGN_TRAFFIC, magnitude=0.0), ledger.now
    )  # strangers never end by themselves
    while machine.next_at() is not None:
        ledger.advance(machine)
    ledger.check(machine)


class Ledger:
    """What was asked for and what came."""

    def __init__(self) -> None:
        self.now = 0.0
        self.submitted: dict[int, SimRequest] = {}
        self.aborted: set[int] = set()
        self.came: dict[tuple[int, int], list[Emission]] = {}

    def advance(self, machine: SimEngine) -> None:
        due = machine.next_at()
        if due is None:
            return
        assert due >= self.now
        self.now = due
        for emission in machine.step(due):
            assert emission.request_id not in self.aborted
            self.came.setdefault((emission.request_id, emission.choice), []).append(emission)

    def check(self, machine: SimEngine) -> None:
        for number, request in self.submitted.items():
            if number in self.aborted:
                continue
            for choice in range(request.n):
                emissions = self.came[number, choice]
                assert [bool(emission.finish) for emission in emissions] == [False] * (len(emissions) - 1) + [True]
                tokens = sum(len(emission.tokens) for emission in emissions)
                assert tokens == emissions[-1].generated_tokens <= request.max_tokens
                assert (tokens == request.max_tokens) or not request.ignore_eos
                assert len(emissions) == 1 or request.stream
        counters = machine.counters()
        assert (counters.running, counters.waiting, counters.kv_cache_usage) == (0, 0, 0)
