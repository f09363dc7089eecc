"""Installs the peers into `benchmarks/.peers`, from their registries' packages and nothing else.

nginx is Debian's package, unpacked beside the harness instead of installed, so that no service starts. vllm-router
comes from PyPI into an environment of its own.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.relays import PEERS_FOLDER, UNPACKED_NGINX, VLLM_ROUTER

VLLM_ROUTER_VERSION = "0.1.17"


def _run(command: Sequence[str], *, folder: Path) -> None:
    print("+", " ".join(command), flush=True)
    subprocess.run(command, cwd=folder, check=True)


def _nginx() -> None:
    folder = PEERS_FOLDER / "nginx"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        _run(["apt-get", "download", "nginx"], folder=folder)
    except subprocess.CalledProcessError:
        # A fresh machine has no package lists yet.
        _run(["apt-get", "update", "-q"], folder=folder)
        _run(["apt-get", "download", "nginx"], folder=folder)
    [package] = folder.glob("nginx_*.deb")
    _run(["dpkg", "-x", package.name, "."], folder=folder)
    _run([str(UNPACKED_NGINX), "-v"], folder=folder)


def _vllm_router() -> None:
    folder = PEERS_FOLDER / "vllm-router"
    folder.mkdir(parents=True, exist_ok=True)
    _run([sys.executable, "-m", "venv", "."], folder=folder)
    _run(
        [
            "bin/python",
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            f"vllm-router=={VLLM_ROUTER_VERSION}",
        ],
        folder=folder,
    )


def prepare() -> int:
    """Install what is not there yet; the exit code tells whether all peers are there now."""
    faults = []
    for name, path, install in (("nginx", UNPACKED_NGINX, _nginx), ("vllm-router", VLLM_ROUTER, _vllm_router)):
        if path.exists():
            print(f"{name}: there")
            continue
        try:
            install()
        except (subprocess.CalledProcessError, OSError, ValueError) as error:
            faults.append(f"{name}: {error}")
    for fault in faults:
        print(f"not installed: {fault}", file=sys.stderr)
    return 1 if faults else 0
