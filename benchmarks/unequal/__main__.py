"""`python -m benchmarks.unequal`: the policies of routing side by side, over simulated engines that are not alike.

What was found is told window by window; the tables go to standard output. Exit codes: 0 measured, 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from benchmarks import machine
from benchmarks.published.stage import say
from benchmarks.unequal import following, table
from benchmarks.unequal.scenes import LOADS, SCENES, Load
from benchmarks.unequal.session import Plan, Session, Window


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.unequal", description=__doc__)
    plan = Plan(loads=LOADS)
    names = [scene.name for scene in SCENES]
    loads = ",".join(str(load.streams) for load in LOADS)
    parser.add_argument("--scenes", default=",".join(names), help=f"comma-separated, of {', '.join(names)}")
    parser.add_argument("--loads", default=loads, help="comma-separated numbers of streams; 0 is arrivals by chance")
    parser.add_argument("--rounds", type=int, default=plan.rounds, help="of all policies; their order turns around")
    parser.add_argument("--workers", type=int, default=plan.workers, help="of the gateway")
    parser.add_argument("--speed", type=float, default=plan.speed, help="so many times faster than real")
    parser.add_argument("--warm-up", type=float, default=plan.warm_up_s, help="seconds on the engines' clock")
    parser.add_argument("--window", type=float, default=plan.window_s, help="seconds on the engines' clock")
    parser.add_argument("--seed", type=int, default=plan.seed, help="of lengths, arrivals and engines")
    parser.add_argument("--follow", action="store_true", help="how soon changes are followed, instead: ten minutes")
    parser.add_argument("--json", type=Path, help="a file for every single window")
    arguments = parser.parse_args()
    if unknown := set(arguments.scenes.split(",")) - set(names):
        parser.error(f"unknown scenes: {', '.join(sorted(unknown))}; of {', '.join(names)}")
    if not all(it.isdecimal() for it in arguments.loads.split(",")):
        parser.error("loads are numbers of streams")
    return arguments


def _plan(arguments: argparse.Namespace) -> Plan:
    return Plan(
        speed=arguments.speed,
        warm_up_s=arguments.warm_up,
        window_s=arguments.window,
        rounds=arguments.rounds,
        workers=arguments.workers,
        seed=arguments.seed,
        loads=[Load(streams=int(it)) for it in arguments.loads.split(",")],
    )


def _follow(seed: int) -> int:
    with tempfile.TemporaryDirectory(prefix="pacekeeper-unequal-") as name:
        found = [following.followed(Path(name), streams=streams, seed=seed) for streams in following.STREAMS]
    here = machine.describe()
    print("# How soon measured-rate follows a SIMULATED engine that changes\n")
    print(
        f"No GPU, no model. {here.date}, {here.cpu_model}, {here.cores} cores, revision {here.revision}, real time.\n"
    )
    print(following.markdown(found))
    return 0


def main() -> int:
    """Measure and print."""
    arguments = _arguments()
    if arguments.follow:
        return _follow(arguments.seed)
    plan = _plan(arguments)
    scenes = [scene for scene in SCENES if scene.name in arguments.scenes.split(",")]
    say(f"about {plan.about_s(len(scenes)) / 60:.0f} minutes")
    began_s = time.monotonic()
    windows: list[Window] = []
    with tempfile.TemporaryDirectory(prefix="pacekeeper-unequal-") as name:
        session = Session(plan, Path(name))
        for scene in scenes:
            windows += session.windows(scene)
    if arguments.json is not None:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(windows), indent=1) + b"\n")
    here = machine.describe()
    print("# Streams over unequal SIMULATED engines, through the gateway, measured by the gateway\n")
    print(
        f"No GPU, no model. {here.date}, {here.cpu_model}, {here.cores} cores, revision {here.revision}, workers "
        f"{plan.workers}, engines at {plan.speed:g} times the real speed, {plan.rounds} rounds, medians of them, windows "
        f"of {plan.window_s:g} s on the engines' clock after {plan.warm_up_s:g} s, took "
        f"{time.monotonic() - began_s:.0f} s.\n"
    )
    for scene in scenes:
        print(f"## {scene.title}\n\n{table.of_scene([it for it in windows if it.scene == scene.name])}\n")
    for warning in table.warnings(windows):
        print(f"- {warning}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
