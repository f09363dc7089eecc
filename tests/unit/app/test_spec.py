"""The install specification: made from settings, written for the children, and the directory that it lives in."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from gateway.app import spec as spec_module
from gateway.app.spec import InstallSpec, install_spec, prepare_runtime_dir, read_spec, write_spec
from gateway.errors import GatewayFault, RuntimeDirUnusable
from gateway.settings import parse

SPEC = InstallSpec(
    config_path="/etc/pacekeeper/gateway.yaml",
    runtime_dir="/nowhere",
    store_path="/nowhere/pacekeeper.db",
    workers=2,
    clients=("127.0.0.1:8080",),
    operators=("127.0.0.1:8081",),
)
CONFIG = """
clients: {listen: ["127.0.0.1:7001", "unix:/run/pk/clients.sock"], drain_s: 12, head_s: 7, idle_s: 9, connections: 11}
operators: {listen: ["[::1]:7002"]}
workers: %s
runtime_dir: /run/pk
store: {path: /var/lib/pk/history.db, keep_days: 2, keep_bytes: 5 MiB}
log: {level: warning, format: console}
pools: [{name: p, backends: [{name: a, url: "http://127.0.0.1:9001"}]}]
"""


def in_folder(path: Path) -> InstallSpec:
    return InstallSpec(
        config_path="/etc/pk.yaml",
        runtime_dir=str(path),
        store_path=str(path / "pk.db"),
        workers=1,
        clients=(),
        operators=(),
    )


def test_every_install_setting_reaches_the_children() -> None:
    assert install_spec(parse(CONFIG % 3, "/etc/pk.yaml", environ={})) == InstallSpec(
        config_path="/etc/pk.yaml",
        runtime_dir="/run/pk",
        store_path="/var/lib/pk/history.db",
        workers=3,
        clients=("127.0.0.1:7001", "unix:/run/pk/clients.sock"),
        operators=("[::1]:7002",),
        log_format="console",
        log_level="warning",
        drain_s=12.0,
        client_head_s=7.0,
        client_idle_s=9.0,
        connections=11,
        store_keep_s=2 * 86400.0,
        store_keep_bytes=5 * 1024 * 1024,
    )


def test_auto_is_one_worker_for_each_processor_that_may_be_used() -> None:
    spec = install_spec(parse(CONFIG % "auto", "/etc/pk.yaml", environ={}))
    assert spec.workers == len(os.sched_getaffinity(0))


def test_what_is_written_is_read_and_private(tmp_path: Path) -> None:
    spec = in_folder(tmp_path / "run")
    path = write_spec(spec)
    assert read_spec(path) == spec
    assert path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["install.json"]
    assert spec.link_path == str(tmp_path / "run" / "link.sock")


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"version": 1, "surplus": 2}'], ids=["empty", "no fields", "list", "unknown"]
)
def test_a_specification_that_is_none_is_a_defect_with_its_place(tmp_path: Path, text: str) -> None:
    path = tmp_path / "install.json"
    path.write_text(text)
    with pytest.raises(GatewayFault, match=f"{path}: no install specification"):
        read_spec(path)


def test_a_missing_specification_is_a_defect(tmp_path: Path) -> None:
    with pytest.raises(GatewayFault, match="no install specification"):
        read_spec(tmp_path / "install.json")


def test_a_specification_of_another_release_is_refused(tmp_path: Path) -> None:
    path = write_spec(in_folder(tmp_path / "run"))
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(GatewayFault, match="of version 2, this release reads 1"):
        read_spec(path)


# --- the runtime directory ----------------------------------------------------------------------------------------


def test_parents_are_made_and_a_private_directory_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "var" / "run"
    prepare_runtime_dir(path)
    (path / "kept").touch()
    prepare_runtime_dir(path)
    assert (path / "kept").exists()


def test_a_directory_open_to_others_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(RuntimeDirUnusable, match=r"open to others \(mode 0755\); chmod 0700 it"):
        prepare_runtime_dir(tmp_path)


def test_a_link_or_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(RuntimeDirUnusable, match="must be a directory, not a link"):
        prepare_runtime_dir(tmp_path / "link")
    (tmp_path / "file").touch()
    with pytest.raises(RuntimeDirUnusable, match="cannot be made: File exists"):
        prepare_runtime_dir(tmp_path / "file")


def test_a_directory_of_somebody_else_is_refused(tmp_path: Path, monkeypatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(spec_module.os, "geteuid", lambda: 12345)
    with pytest.raises(RuntimeDirUnusable, match=r"belongs to uid \d+, not to us"):
        prepare_runtime_dir(tmp_path)


def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(spec_module.os, "access", lambda *_: False)  # root may write anywhere
    with pytest.raises(RuntimeDirUnusable, match="not writable"):
        prepare_runtime_dir(tmp_path)


def test_a_directory_too_deep_for_a_socket_is_refused_exactly_where_the_system_would(tmp_path: Path) -> None:
    room = 107 - len(os.fsencode(tmp_path)) - len("//link.sock")
    deepest = tmp_path / ("x" * room)
    prepare_runtime_dir(deepest)
    with socket.socket(socket.AF_UNIX) as link:
        link.bind(str(deepest / "link.sock"))
    with pytest.raises(RuntimeDirUnusable, match="a socket's path of 108 bytes, 107 at most"):
        prepare_runtime_dir(tmp_path / ("x" * (room + 1)))


def test_a_specification_that_cannot_be_written_is_the_operators_to_mend(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    (tmp_path / "run" / "install.json").mkdir()
    with pytest.raises(RuntimeDirUnusable, match="cannot be written"):
        write_spec(in_folder(tmp_path / "run"))
