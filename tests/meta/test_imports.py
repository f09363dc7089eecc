"""Each module imports alone, and each process imports only what it needs.

A module that works only when another was imported first hides a cycle.  A worker or supervisor that loads the
settings machinery or the metrics registry starts slowly and holds memory for nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.meta.source_tree import PACKAGE, ROOT, python_sources

MODULES = [source.module for source in python_sources(PACKAGE)]

# Runs in a fresh interpreter: a child per module, forked before anything of ours is imported.
IMPORT_EACH_ALONE = """
import importlib, json, os, sys, traceback
failed = {}
for name in json.loads(sys.argv[1]):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            importlib.import_module(name)
        except BaseException:
            os.write(writer, traceback.format_exc()[-2000:].encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as stream:
        error = stream.read().decode()
    _, status = os.waitpid(child, 0)
    if error or status:
        failed[name] = error or f"ended with status {status}"
print(json.dumps(failed))
"""

LIST_IMPORTED = """
import importlib, json, sys
importlib.import_module(sys.argv[1])
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def run_fresh(script: str, argument: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, argument],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("part", range(6))
def test_each_module_imports_alone_without_a_warning(part: int) -> None:
    assert json.loads(run_fresh(IMPORT_EACH_ALONE, json.dumps(MODULES[part::6]))) == {}


def test_a_module_that_cannot_be_imported_is_found() -> None:
    assert list(json.loads(run_fresh(IMPORT_EACH_ALONE, json.dumps(["gateway.no_such_module"])))) == [
        "gateway.no_such_module"
    ]


MODELS_AND_TABLES = {"prometheus_client", "pydantic", "pydantic_settings", "rich", "sqlite3", "typer", "yaml"}


@pytest.mark.parametrize(
    "module,kept_out",
    [
        ("gateway.app.worker_main", MODELS_AND_TABLES | {"structlog"}),
        ("gateway.supervisor", MODELS_AND_TABLES | {"aiohttp", "structlog", "uvloop"}),
        ("gateway.app.control_main", {"typer"}),
    ],
)
def test_a_process_loads_only_what_it_needs(module: str, kept_out: set[str]) -> None:
    loaded = set(json.loads(run_fresh(LIST_IMPORTED, module)))
    assert "gateway" in loaded
    assert loaded & kept_out == set()


def test_the_version_costs_no_import_until_it_is_asked_for() -> None:
    assert "importlib.metadata" not in run_fresh("import sys, gateway; print(*sys.modules)", "")
    assert run_fresh("import gateway; print(gateway.__version__)", "").strip()
