"""Prepares the peers in `benchmarks/.peers`, from their registries' packages and nothing else.

`python -m benchmarks.prepare` installs here. `--carry FOLDER` collects packages for a machine without a network
instead, in parts that are small enough to be carried one by one; there, `--from PART` installs a part. What cannot be
prepared is noted with its reason, which then stands in the table. Needs nothing but the standard library.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks import peers
from benchmarks.peers import FOLDER, HARNESS, PEERS, Peer

ROOT = Path(__file__).parent.parent
PART_MIB = 45
_MIB = 1024 * 1024
_PIP = (sys.executable, "-m", "pip")
_QUIET = ("-q", "--disable-pip-version-check", "--no-warn-conflicts")
# Newest first does not matter: pip takes a wheel of any of them.
_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
_HARNESS_EXTRAS = ("httptools>=0.7,<1",)
_NOT_CARRIED = "too large to be carried to this machine"


class Failed(Exception):
    """A step did not work; the text says which and why."""


def _run(command: Sequence[str], *, folder: Path) -> None:
    print("+", " ".join(command), flush=True)
    done = subprocess.run(command, cwd=folder, check=False, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        told = [line for line in lines if line.startswith(("ERROR", "E:"))] or lines[-1:]
        raise Failed(f"{command[0]} ended with {done.returncode}: {' '.join(told)}")


# --- getting packages ------------------------------------------------------------------------------------------------


def _fetch_debian(names: Sequence[str], folder: Path) -> None:
    try:
        _run(["apt-get", "download", "-q", *names], folder=folder)
    except Failed:
        # A fresh machine has no package lists yet.
        _run(["apt-get", "update", "-q"], folder=folder)
        _run(["apt-get", "download", "-q", *names], folder=folder)


def _fetch_wheels(wanted: Sequence[str], folder: Path, *, python: str) -> None:
    platforms = [f"--platform={platform}" for platform in _PLATFORMS]
    kind = ("--only-binary=:all:", "--implementation=cp", f"--python-version={python}", *platforms)
    _run([*_PIP, "download", *_QUIET[:2], *kind, "-d", str(folder), *wanted], folder=ROOT)


# --- installing ------------------------------------------------------------------------------------------------------


def _unpack_debian(peer: Peer, packages: Path) -> None:
    for package in sorted(packages.glob("*.deb")):
        _run(["dpkg", "-x", str(package), str(peer.folder)], folder=ROOT)
    _run([*peers.program(peer.name), "-v"], folder=ROOT)


def _install_wheels(wanted: Sequence[str], folder: Path, *, found_in: Path | None = None) -> None:
    """Into a folder of its own, with all that they need, whatever this Python has already."""
    source = [] if found_in is None else ["--no-index", f"--find-links={found_in}"]
    _run([*_PIP, "install", *_QUIET, *source, "--no-compile", f"--target={folder}", *wanted], folder=ROOT)


def _fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _prepare(peer: Peer) -> None:
    """Install one peer on this machine."""
    folder = _fresh(peer.folder)
    if peer.debian:
        _fetch_debian(peer.debian, folder)
        peers.note_prepared(peer.name, peer.pin)
        _unpack_debian(peer, folder)
    else:
        _install_wheels([peer.requirement], folder)
        peers.note_prepared(peer.name, peer.pin)


def _noted(name: str, step: Callable[[], None]) -> str | None:
    """Do a step; what went wrong, if anything did, which is then noted for the table as well."""
    try:
        step()
    except (Failed, OSError) as error:
        shutil.rmtree(FOLDER / name, ignore_errors=True)
        peers.note_missing(name, str(error))
        return f"{name}: {error}"
    return None


def prepare() -> int:
    """Install what is not there yet; the exit code tells whether all peers are there now."""
    faults = []
    for peer in PEERS:
        if peers.prepared(peer.name, peer.pin):
            print(f"{peer.name}: there")
        elif fault := _noted(peer.name, partial(_prepare, peer)):
            faults.append(fault)
    return _told(faults)


def _told(faults: Sequence[str]) -> int:
    for fault in faults:
        print(f"not prepared: {fault}", file=sys.stderr)
    return 1 if faults else 0


# --- carrying --------------------------------------------------------------------------------------------------------


def carry(folder: Path, *, python: str, names: Sequence[str], part_mib: float) -> int:
    """Collect the packages of the harness and of the named peers in parts of at most ``part_mib`` each."""
    _fresh(folder)
    collected, faults = folder / "collected", []
    for name in (HARNESS, *names):
        try:
            _collect(name, collected / name, python=python)
        except (Failed, OSError) as error:
            shutil.rmtree(collected / name, ignore_errors=True)
            faults.append(f"{name}: {error}")
    for number, items in enumerate(parts(_sizes(collected), most=int(part_mib * _MIB)), start=1):
        part = folder / f"part-{number}"
        part.mkdir()
        for name in items:
            (collected / name).rename(part / name)
        size_mib = sum(_sizes(part).values()) / _MIB
        print(f"{part}: {size_mib:.1f} MiB, {', '.join(items)}")
    shutil.rmtree(collected, ignore_errors=True)
    return _told(faults)


def _collect(name: str, folder: Path, *, python: str) -> None:
    folder.mkdir(parents=True)
    if name == HARNESS:
        runtime = ROOT / "requirements" / "runtime.txt"
        _run([*_PIP, "wheel", *_QUIET[:2], "--no-deps", "--no-build-isolation", "-w", str(folder), "."], folder=ROOT)
        # The lock holds hashes, which go with nothing that has none: names and versions are taken from it.
        pins = [line.split(";")[0].split("\\")[0].strip() for line in runtime.read_text().splitlines() if "==" in line]
        _fetch_wheels([pin for pin in pins if not pin.startswith(("#", "colorama"))], folder, python=python)
        _fetch_wheels(_HARNESS_EXTRAS, folder, python=python)
        return
    peer = peers.peer(name)
    if peer.debian:
        _fetch_debian(peer.debian, folder)
    else:
        _fetch_wheels([peer.requirement], folder, python=python)


def _sizes(folder: Path) -> dict[str, int]:
    return {
        one.name: sum(file.stat().st_size for file in one.rglob("*") if file.is_file())
        for one in sorted(folder.iterdir())
    }


def parts(sizes: dict[str, int], *, most: int) -> list[list[str]]:
    """Put the largest first into the first part that has room; one that is larger than a part has one to itself."""
    found: list[tuple[int, list[str]]] = []
    for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
        for index, (used, names) in enumerate(found):
            if used + size <= most:
                found[index] = (used + size, [*names, name])
                break
        else:
            found.append((size, [name]))
    return [names for _, names in found]


def install_part(part: Path) -> int:
    """Install what a carried part holds; peers that are never carried are noted as missing, with that reason."""
    found = [_noted(packages.name, partial(_install_carried, packages)) for packages in sorted(part.iterdir())]
    for peer in PEERS:
        if not peer.carried and not peers.prepared(peer.name, peer.pin):
            peers.note_missing(peer.name, _NOT_CARRIED)
    return _told([fault for fault in found if fault])


def _install_carried(packages: Path) -> None:
    if packages.name == HARNESS:
        wheels = [str(wheel) for wheel in sorted(packages.glob("*.whl"))]
        _install_wheels(["--no-deps", *wheels], _fresh(FOLDER / HARNESS))
        return
    peer = peers.peer(packages.name)
    folder = _fresh(peer.folder)
    peers.note_prepared(peer.name, peer.pin)
    if peer.debian:
        _unpack_debian(peer, packages)
    else:
        _install_wheels([peer.requirement], folder, found_in=packages)


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prepare", description=__doc__)
    parser.add_argument("--carry", type=Path, metavar="FOLDER", help="collect packages for another machine there")
    parser.add_argument("--python", default="3.12", help="the other machine's Python")
    parser.add_argument(
        "--peers", default=",".join(one.name for one in PEERS if one.carried), help="which peers to carry"
    )
    parser.add_argument("--part-mib", type=float, default=PART_MIB, help="size of a part at most")
    parser.add_argument("--from", dest="part", type=Path, metavar="PART", help="install what was carried here")
    arguments = parser.parse_args()
    names = [name for name in arguments.peers.split(",") if name]
    if unknown := set(names) - {one.name for one in PEERS}:
        parser.error(f"unknown peers: {', '.join(sorted(unknown))}")
    if arguments.carry is not None:
        return carry(arguments.carry.absolute(), python=arguments.python, names=names, part_mib=arguments.part_mib)
    if arguments.part is not None:
        return install_part(arguments.part.absolute())
    return prepare()


if __name__ == "__main__":
    sys.exit(main())
