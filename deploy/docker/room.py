"""A clean folder in which the instructions of an image run as they would in its container.

A room is a root folder of its own: this machine's /usr (read-only) and a bare Python in /usr/local stand for the
base image, everything else is empty.  Commands run in their own mount and process namespaces, with no environment
but the image's, as the image's user; a room's processes end with the command.  Needs root and Linux namespaces.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

BASE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Name look-up, certificates and the settings of pip: a build asks the same registry as this machine does.
ETC = ["hosts", "resolv.conf", "nsswitch.conf", "passwd", "group", "ld.so.conf", "ld.so.conf.d", "ssl", "pip.conf"]
PASSED_ON = ("PIP_INDEX_URL", "PIP_CERT", "PIP_DEFAULT_TIMEOUT", "SSL_CERT_FILE", "http_proxy", "https_proxy")
MERGED = ["bin", "lib", "lib64", "sbin"]


@dataclass(slots=True)
class Room:
    """One stage under construction; owns its folder, its environment, its user and its working folder."""

    root: Path
    python: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": BASE_PATH})
    user: str = "0:0"
    folder: str = "/"

    def furnish(self) -> None:
        """Make the empty root: folders, links into /usr and the few files of /etc that every image has."""
        for name in ("usr", "proc", "dev", "etc", "opt", "run", "tmp", "var/lib", "root"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        (self.root / "tmp").chmod(0o1777)
        for name in MERGED:
            if Path("/", name).is_symlink():
                (self.root / name).symlink_to(Path("/", name).readlink())
        for name in ETC:
            source = Path("/etc", name)
            if source.is_dir():
                shutil.copytree(source, self.root / "etc" / name, symlinks=True)
            elif source.exists():
                shutil.copy(source, self.root / "etc" / name)
        self.run("ldconfig")

    def path(self, inside: str) -> Path:
        """Where a path of the image lies on this machine; relative ones start at the working folder."""
        return self.root / str(Path(self.folder, inside)).lstrip("/")

    def run(self, command: str, *, network: bool = True, passed: dict[str, str] | None = None) -> str:
        """Run a shell command inside and return its output; CalledProcessError when it fails.

        Without `network` it has a loopback interface of its own and nothing else.
        """
        inside = f"cd {shlex.quote(self.folder)} && {command}"
        variables = [f"{name}={value}" for name, value in {**(passed or {}), **self.environment}.items()]
        enter = shlex.join(
            [
                "chroot",
                f"--userspec={self.user}",
                str(self.root),
                "/usr/bin/env",
                "-i",
                *variables,
                "/bin/sh",
                "-ec",
                inside,
            ]
        )
        mounts = [
            shlex.join(["mount", "--bind", "/usr", str(self.root / "usr")]),
            shlex.join(["mount", "-o", "remount,bind,ro", str(self.root / "usr")]),
            shlex.join(["mount", "--bind", str(self.python), str(self.root / "usr/local")]),
            shlex.join(["mount", "-t", "proc", "proc", str(self.root / "proc")]),
            shlex.join(["mount", "--rbind", "/dev", str(self.root / "dev")]),
        ]
        if not network:
            mounts.append("ip link set lo up")
        unshare = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]
        script = " && ".join([*mounts, f"exec {enter}"])
        done = subprocess.run(
            [*unshare, *([] if network else ["--net"]), "/bin/sh", "-ec", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, command, output=done.stdout)
        return done.stdout

    def build(self, command: str) -> str:
        """Carry out a RUN instruction: with network, and with this machine's settings of pip."""
        passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        return self.run(command, passed=passed)


def bare_python(target: Path) -> None:
    """Copy the interpreter that runs this to `target`, as /usr/local of the base image: no packages, no tests.

    The interpreter of a Debian package stays in /usr, where every user can read it, and `target` stays empty.
    """
    target.mkdir(parents=True)
    prefix = Path(sys.base_prefix)
    if prefix == Path("/usr"):
        return
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (target / "bin").mkdir()
    shutil.copy(prefix / "bin" / name, target / "bin" / name)
    for link in ("python3", "python"):
        (target / "bin" / link).symlink_to(name)
    skipped = shutil.ignore_patterns("site-packages", "test", "idlelib", "__pycache__")
    shutil.copytree(prefix / "lib" / name, target / "lib" / name, ignore=skipped, symlinks=True)
    for library in (prefix / "lib").glob("libpython*.so*"):
        shutil.copy(library, target / "lib" / library.name)
