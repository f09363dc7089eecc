"""What NCCL takes from its configuration files: variables that are absent from the environment, and only those.

Shell: reads the user's file (``NCCL_CONF_FILE`` from 2.23 on, else ``~/.nccl.conf``), then the system's, which is
always read.  Lines are ``NAME=VALUE``, taken as they stand; any other line is nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gateway.simulator.nccl_env import version_of

SYSTEM_FILE: Final = Path("/etc/nccl.conf")
_NAMED_FILE_SINCE: Final = (2, 23)


def with_files(
    environment: Mapping[str, str], *, nccl_version: str, home: Path, system: Path = SYSTEM_FILE
) -> dict[str, str]:
    """Return the environment as NCCL of that version has it: what is set, then the user's file, then the system's."""
    named = environment.get("NCCL_CONF_FILE", "") if version_of(nccl_version) >= _NAMED_FILE_SINCE else ""
    user = Path(named) if named else home / ".nccl.conf"
    return {**_read(system), **_read(user), **environment}


def _read(path: Path) -> dict[str, str]:
    """What a file sets of NCCL; the first line of a name counts, and a file that cannot be read is nothing."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    found: dict[str, str] = {}
    for line in lines:
        name, equals, value = line.partition("=")
        if equals and name.startswith("NCCL_"):
            found.setdefault(name, value)
    return found
