"""Carry out the Dockerfile's own instructions in a clean folder, where there is no Docker, and try the result.

`make docker-check` runs it.  It builds both stages, starts the image's command as the image's user with nothing but
a loopback interface, asks with the image's health check, and stops it with the image's signal.  Exit status 0 when
all of that went as it should; the first thing that did not is printed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from deploy.docker.dockerfile import Instruction, Stage, environment, ignore_patterns, is_ignored, parse
from deploy.docker.room import Room, bare_python

ROOT = Path(__file__).resolve().parents[2]

# Runs inside, as the image's user: PID of the command = $main.
TRIAL = """
say() {{ echo "-- $*"; }}
test "$(id -u)" != 0 || {{ say "runs as root"; exit 1; }}
if touch /opt/pacekeeper/mine 2>/dev/null; then say "can change its own code"; exit 1; fi
if {health} 2>/dev/null; then say "healthy before it was started"; exit 1; fi
{version}
{command} >/tmp/log 2>&1 &
main=$!
tries=0
until {health} 2>/tmp/health; do
    tries=$((tries + 1))
    if [ $tries -ge 100 ] || ! kill -0 $main 2>/dev/null; then
        say "never became healthy: $(cat /tmp/health)"; cat /tmp/log; exit 1
    fi
    sleep 0.2
done
say "healthy as user $(id -u)"
kill -{signal} $main
status=0; wait $main || status=$?
if [ $status != 0 ]; then say "ended with status $status after {signal}"; cat /tmp/log; exit 1; fi
if {health} 2>/dev/null; then say "healthy after it ended"; exit 1; fi
say "ended with status 0 after {signal}"
"""


class Image:
    """The stages of one Dockerfile on their way to a runnable root folder; owns the folder below `work`."""

    def __init__(self, context: Path, work: Path) -> None:
        self._context = context
        self._work = work
        self._patterns = ignore_patterns((context / ".dockerignore").read_text(encoding="utf-8"))
        self._rooms: dict[str, Room] = {}

    def build(self, stages: list[Stage]) -> Room:
        """Build every stage in order; returns the last one's room."""
        python = self._work / "python"
        bare_python(python)
        room = Room(root=self._work / "none", python=python)
        for number, stage in enumerate(stages):
            room = Room(root=self._work / f"stage-{number}", python=python)
            room.root.mkdir()
            room.furnish()
            self._rooms[stage.name or str(number)] = room
            print(f"-- FROM {stage.base} (here: this machine's /usr and a bare Python {sys.version.split()[0]})")
            for instruction in stage.instructions:
                self._carry_out(instruction, room=room)
        return room

    def _carry_out(self, instruction: Instruction, *, room: Room) -> None:
        started = time.monotonic()
        match instruction.word:
            case "RUN":
                room.build(instruction.rest)
            case "COPY":
                self._copy(instruction, room=room)
            case "WORKDIR":
                room.folder = instruction.rest
                room.path(".").mkdir(parents=True, exist_ok=True)
            case "ENV":
                room.environment.update(environment(instruction.rest))
            case "USER":
                room.user = instruction.rest
            case _:  # what only says how to start the result: read by try_out
                return
        print(f"-- {instruction.word} {instruction.rest[:90]} ({time.monotonic() - started:.1f} s)")

    def _copy(self, instruction: Instruction, *, room: Room) -> None:
        *sources, target = shlex.split(instruction.rest)
        unknown = set(instruction.flags) - {"from"}
        if unknown:
            raise ValueError(f"line {instruction.line}: COPY with {sorted(unknown)} is not known here")
        into_folder = target.endswith("/") or len(sources) > 1
        for source in sources:
            if "from" in instruction.flags:
                origin = self._rooms[instruction.flags["from"]].path(source)
                shutil.copytree(origin, room.path(target), symlinks=True, dirs_exist_ok=True)
            else:
                goal = room.path(target) / Path(source).name if into_folder else room.path(target)
                self._copy_from_context(source, goal=goal)

    def _copy_from_context(self, source: str, *, goal: Path) -> None:
        origin = self._context / source
        files = [origin] if origin.is_file() else sorted(path for path in origin.rglob("*") if path.is_file())
        sent = [path for path in files if not is_ignored(str(path.relative_to(self._context)), patterns=self._patterns)]
        if not sent:
            raise ValueError(f"COPY {source}: .dockerignore or the tree leaves nothing to copy")
        for path in sent:
            place = goal if path == origin else goal / path.relative_to(origin)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)


def try_out(room: Room, *, stage: Stage) -> str:
    """Start, ask and stop the image's command inside; returns what the trial printed."""
    entrypoint = stage.last("ENTRYPOINT").json_words()
    health = stage.last("HEALTHCHECK").rest.partition("CMD ")[2]
    probe = Instruction(word="HEALTHCHECK", flags={}, rest=health, line=stage.last("HEALTHCHECK").line).json_words()
    script = TRIAL.format(
        health=shlex.join(probe),
        version=shlex.join([*entrypoint, "version"]),
        command=shlex.join([*entrypoint, *stage.last("CMD").json_words()]),
        signal=stage.last("STOPSIGNAL").rest.removeprefix("SIG"),
    )
    return room.run(script, network=False)


def main() -> int:
    """Build, try, report; 0 when the image would work."""
    if os.geteuid() != 0:
        print("needs root: it makes namespaces and changes to the image's user", file=sys.stderr)
        return 1
    stages = parse((ROOT / "Dockerfile").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="pacekeeper-image-") as name:
        work = Path(name)
        work.chmod(0o755)  # the image's user walks through it
        try:
            room = Image(ROOT, work).build(stages)
            print(try_out(room, stage=stages[-1]), end="")
        except subprocess.CalledProcessError as error:
            print(f"{error.output}\nfailed with status {error.returncode}: {error.cmd}", file=sys.stderr)
            return 1
    print("-- the image's steps work, and so does what they make")
    return 0


if __name__ == "__main__":
    sys.exit(main())
