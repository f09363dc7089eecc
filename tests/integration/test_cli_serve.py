"""`pacekeeper serve` from its start to its stop, with the other commands asking it, and what keeps it from starting."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.test_cli import COMMAND, environment, run

UNWRITABLE = "/proc/gone/p.db"  # not even root can make a folder there


def free_ports(number: int) -> list[int]:
    with_ports = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [int(listener.getsockname()[1]) for listener in with_ports]
    for listener in with_ports:
        listener.close()
    return ports


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration with free ports and a backend that is not there."""
    clients, operators, backend = free_ports(3)
    path = tmp_path / "g.yaml"
    path.write_text(
        f'clients: {{listen: ["127.0.0.1:{clients}"]}}\n'
        f'operators: {{listen: ["127.0.0.1:{operators}"]}}\n'
        f'pools: [{{name: main, backends: [{{name: a, url: "http://127.0.0.1:{backend}"}}]}}]\n'
    )
    return path


@contextmanager
def gateway(config: Path) -> Iterator[subprocess.Popen[str]]:
    """`serve` until it says that it is ready; stopped at the end."""
    with (config.parent / "log").open("w") as log:
        process = subprocess.Popen(
            [COMMAND, "serve", "--config", config.name],
            cwd=config.parent,
            env=environment(),
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            for line in process.stderr or ():
                log.write(line)
                if '"notice": "ready"' in line or '"notice":"ready"' in line:
                    break
            else:
                log.flush()
                pytest.fail((config.parent / "log").read_text())
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(timeout=10)
            if process.stderr is not None:
                process.stderr.close()


def test_a_gateway_tells_of_itself_and_stops_when_asked(config: Path) -> None:
    here = config.parent
    with gateway(config) as process:
        status = run("-c", config.name, "status", cwd=here)
        assert (status.returncode, status.stderr) == (0, "")
        assert "main        0         1         1        0        –        0  down" in status.stdout
        report = json.loads(run("-c", config.name, "status", "--json", cwd=here).stdout)
        assert report["config_path"] == str(config)
        backends = run("backends", "list", "-c", config.name, cwd=here).stdout
        assert "a ejected: connection refused\n" in backends
        assert run("backends", "show", "zz", "-c", config.name, cwd=here).returncode == 5
        requests = run("requests", "list", "-c", config.name, cwd=here)
        assert requests.stdout == "no such requests\n"

        elsewhere = here / "elsewhere"
        elsewhere.mkdir()
        lost = run("status", "-c", str(config), cwd=elsewhere)
        assert lost.returncode == 4
        assert "--token-file" in lost.stderr
        found = run("status", "-c", str(config), "--token-file", str(here / "var/run/admin.token"), cwd=elsewhere)
        assert found.returncode == 0

        second = run("serve", "-c", config.name, cwd=here)
        assert second.returncode == 2
        assert f"another gateway runs with this runtime directory (pid {process.pid})" in second.stderr
        other = run("serve", "-c", config.name, cwd=here, PACEKEEPER_RUNTIME_DIR="other")
        assert other.returncode == 2
        assert other.stderr.startswith("pacekeeper: ")
        assert "127.0.0.1:" in other.stderr

        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0
    assert run("status", "-c", config.name, cwd=here).returncode == 3


def test_files_in_the_current_directory_are_never_taken_for_modules(config: Path) -> None:
    for module in ("gateway", "msgspec", "aiohttp", "uvloop", "logging", "token"):
        (config.parent / f"{module}.py").write_text("raise SystemExit('shadowed')\n")
    with gateway(config) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0


def test_a_store_that_cannot_be_written_is_said_once_and_ends_it(config: Path) -> None:
    done = run("serve", "-c", config.name, cwd=config.parent, PACEKEEPER_STORE__PATH=UNWRITABLE)
    assert done.returncode == 2
    assert UNWRITABLE.rpartition("/")[0] in done.stderr
