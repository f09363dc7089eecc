"""`python -m benchmarks`: prepare the peers, or measure everything side by side and print the table.

Exit codes: 0 measured, 1 nothing could be measured or a peer not installed, 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import os
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import msgspec
import uvloop

from benchmarks import launch, machine, relays, report
from benchmarks.merge import merged
from benchmarks.plan import FULL, QUICK, Plan
from benchmarks.prepare import prepare
from benchmarks.results import Run
from benchmarks.session import PARTS, Cores, Session, everything

_LOCAL_RESULTS = Path(__file__).parent / "results" / "local"


def _default_cores() -> Cores:
    """Hardware threads of different physical cores; the engine shares the client's where there are only two."""
    relay, load, *more = [*machine.cores_apart(), 0, 1][:3]
    return Cores(relay=relay, load=load, engine=more[0] if more and machine.cores_apart()[2:] else load)


def _arguments() -> argparse.Namespace:
    cores = _default_cores()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("action", nargs="?", choices=("run", "prepare", "report"), default="run")
    parser.add_argument("files", nargs="*", type=Path, help="report: JSON files of runs of one machine, made one page")
    parser.add_argument("--quick", action="store_true", help="shorter windows and fewer rounds: under two minutes")
    parser.add_argument("--relays", default="", help="comma-separated names; all by default")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"comma-separated, of {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, help="rounds of the cost part")
    parser.add_argument("--bursts", action="store_true", help="all streams step at once, as one batch of an engine")
    parser.add_argument("--include-usage", action="store_true", help="the client asks for usage itself")
    parser.add_argument("--relay-core", type=int, default=cores.relay, help="core of the relay under test")
    parser.add_argument("--load-core", type=int, default=cores.load, help="core of the client")
    parser.add_argument("--engine-core", type=int, default=cores.engine, help="core of the engine")
    parser.add_argument("--unpinned", action="store_true", help="try the workers part on a machine with too few cores")
    parser.add_argument("--limit", type=float, metavar="S", help="seconds after which no further window begins")
    parser.add_argument("--output", type=Path, default=_LOCAL_RESULTS, help="folder of the JSON and Markdown files")
    arguments = parser.parse_args()
    if (arguments.action == "report") is not bool(arguments.files):
        parser.error("report takes files, and nothing else does")
    if unknown := set(arguments.parts.split(",")) - set(PARTS):
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}")
    names = [relay.name for relay in relays.relays()]
    if arguments.relays and (unknown := set(arguments.relays.split(",")) - set(names)):
        parser.error(f"unknown relays: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    if {arguments.relay_core, arguments.load_core, arguments.engine_core} - os.sched_getaffinity(0):
        parser.error("a core is not there: side by side needs one for the relay and at least one for the load")
    return arguments


def _plan(arguments: argparse.Namespace) -> Plan:
    plan = QUICK if arguments.quick else FULL
    if arguments.rounds:
        plan = dataclasses.replace(plan, rounds=arguments.rounds)
    if arguments.bursts:
        plan = dataclasses.replace(plan, grid_ms=plan.pace_ms)
    if arguments.limit:
        plan = dataclasses.replace(plan, limit_s=arguments.limit)
    return dataclasses.replace(plan, include_usage=arguments.include_usage, unpinned=arguments.unpinned)


def _leave(_signal: int, _frame: FrameType | None) -> None:
    # Leaves through the context managers, which end every process that was started.
    raise SystemExit(1)


async def _until_stopped(session: Session, parts: Sequence[str]) -> None:
    """Measure; SIGTERM cancels, since what a handler raises inside a callback is swallowed by the loop."""
    measuring = asyncio.current_task()
    if measuring is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, measuring.cancel)
    await session.measure(parts)


def _run(arguments: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, _leave)
    # A thousand streams need two descriptors each in the relays, which inherit the limit.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    plan = _plan(arguments)
    settings = {
        name: value if isinstance(value, float | int) else str(value)
        for name, value in dataclasses.asdict(plan).items()
    }
    run = Run(machine=machine.describe(), settings=settings)
    wanted = set(arguments.relays.split(",")) if arguments.relays else None
    chosen = [relay for relay in relays.relays() if wanted is None or relay.name in wanted]
    cores = Cores(relay=arguments.relay_core, load=arguments.load_core, engine=arguments.engine_core)
    try:
        with everything(chosen, run, cores=cores) as (targets, bystanders):
            session = Session(plan, targets, bystanders=bystanders, run=run)
            uvloop.run(_until_stopped(session, arguments.parts.split(",")))
    except launch.NotStarted as failure:
        print(f"the mock engine did not start: {failure}", file=sys.stderr)
        return 1
    except (asyncio.CancelledError, KeyboardInterrupt):
        print("stopped before the end: nothing is written", file=sys.stderr)
        return 1
    stem = run.machine.date.replace(":", "").replace("+0000", "Z")
    path = report.write(run, arguments.output, stem)
    print(report.markdown(run))
    print(f"written: {path}", file=sys.stderr)
    measured = (run.costs, run.latencies, run.memories, run.paces, run.prompts, run.workers)
    return 0 if any(measured) else 1


def _report(files: Sequence[Path], output: Path) -> int:
    """Write the page of several runs."""
    runs = [msgspec.json.decode(file.read_bytes(), type=Run) for file in files]
    whole = merged(runs)
    path = report.write(whole, output, files[0].stem + "-whole")
    print(report.markdown(whole))
    print(f"written: {path}", file=sys.stderr)
    return 0


def main() -> int:
    """Do what the command line says."""
    arguments = _arguments()
    match arguments.action:
        case "prepare":
            return prepare()
        case "report":
            return _report(arguments.files, arguments.output)
        case _:
            return _run(arguments)


if __name__ == "__main__":
    sys.exit(main())
