"""`python -m benchmarks.published`: the published figures of the simulated deployments, measured in real time.

Through the gateway, by the gateway; what is left to do is told as it goes, and the table goes to standard output. Exit
codes: 0 every figure is met, 1 one is not, 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks import machine
from benchmarks.published.session import Part, Session, simulator_parts
from benchmarks.published.stage import say
from benchmarks.published.table import Row, markdown
from gateway.simulator import library
from gateway.simulator.presets import Preset


def _has_figures(preset: Preset) -> bool:
    return preset.published.single_tps is not None or preset.published.high_tps is not None


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.published", description=__doc__)
    known = [name for name in library.names() if _has_figures(library.load(name))]
    parser.add_argument("--presets", default=",".join(known), help="comma-separated; all with published figures")
    parser.add_argument("--speed", type=float, default=1.0, help="so many times faster than real")
    arguments = parser.parse_args()
    if unknown := set(arguments.presets.split(",")) - set(known):
        parser.error(f"no published figures of {', '.join(sorted(unknown))}; of {', '.join(known)}")
    return arguments


def _run(parts: list[Part]) -> list[Row]:
    """Do all parts, telling what is left; their rows."""
    rows: list[Row] = []
    for at, part in enumerate(parts):
        left_s = sum(one.about_s for one in parts[at:])
        say(
            f"[{at + 1}/{len(parts)}] {part.name} (about {part.about_s:.0f} s; all done in about {left_s / 60:.1f} min)"
        )
        found = part.rows()
        for row in found:
            say(f"    {row.figure}: {row.measured:,.1f}, published or wanted {row.wanted:,.1f} ({row.ratio - 1:+.1%})")
        rows += found
    return rows


def main() -> int:
    """Measure and print."""
    arguments = _arguments()
    presets = [library.load(name) for name in arguments.presets.split(",")]
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pacekeeper-figures-") as name, ExitStack() as stack:
        folder = Path(name)
        session = Session(presets, folder, speed=arguments.speed, stack=stack)
        rows = _run([*session.parts(), *simulator_parts(presets[0].name, folder)])
    here = machine.describe()
    print("# Published figures of the SIMULATED deployments, through the gateway, measured by the gateway\n")
    print(
        f"No GPU, no model: text invented, times computed. {here.date}, {here.cpu_model}, {here.cores} cores, Linux "
        f"{here.kernel}, Python {here.python}, revision {here.revision}, load average {here.load_average:.2f}, engines at "
        f"{arguments.speed:g} times the real speed, took {time.monotonic() - began_s:.0f} s.\n"
    )
    print(markdown(rows))
    return 0 if all(row.is_met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
