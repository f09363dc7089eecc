"""The documentation keeps up with the code: links, paths, targets and the pages made from catalogues.

A page that names a file, a make target or a command that is not there is wrong, however well it reads.
"""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

import gateway
from docs.reference import FOLDER, PAGES, tree
from gateway import errors, refusals
from tests.meta.source_tree import PACKAGE, ROOT, known_files, python_sources

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
TOP_FOLDERS = ("gateway", "tests", "docs", "deploy", "config", "benchmarks", "requirements")
REPO_PATH = re.compile(rf"(?:{'|'.join(TOP_FOLDERS)})/[\w./-]*")
TARGET_USE = re.compile(r"\bmake ([a-z][a-z-]*)")
TARGET = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)
NODE = re.compile(r"\+-- (\w+)")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def pages() -> dict[str, str]:
    found = {str(path.relative_to(ROOT)): path for path in known_files() if path.suffix == ".md"}
    return {name: path.read_text(encoding="utf-8") for name, path in found.items() if not name.startswith("tests/data")}


def dead_links(name: str, *, text: str) -> list[str]:
    links = [link.partition("#")[0] for link in LINK.findall(text) if not link.startswith(("http:", "https:", "#"))]
    return [link for link in links if not ((ROOT / name).parent / link).exists()]


def dead_paths(text: str) -> list[str]:
    whole = [code for code in CODE.findall(text) if REPO_PATH.fullmatch(code)]
    return [path for path in whole if not (ROOT / path).exists() and not is_made_by_a_run(path)]


def is_made_by_a_run(path: str) -> bool:
    """Whether git ignores the path: then it comes and goes with what runs."""
    return subprocess.run(["git", "check-ignore", "-q", path], cwd=ROOT, check=False).returncode == 0


def code_of(text: str) -> list[str]:
    """What a page shows as code: fenced blocks and inline."""
    return re.findall(r"```.*?```", text, re.DOTALL) + CODE.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def targets_used(text: str) -> set[str]:
    return {target for code in code_of(text) for target in TARGET_USE.findall(code)}


def test_every_link_between_pages_leads_somewhere() -> None:
    found = {name: dead_links(name, text=text) for name, text in pages().items()}
    assert {name: links for name, links in found.items() if links} == {}


def test_every_path_that_a_page_names_exists() -> None:
    found = {name: dead_paths(text) for name, text in pages().items()}
    assert {name: paths for name, paths in found.items() if paths} == {}


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(TARGET.findall(MAKEFILE))
    found = {name: targets_used(text) - targets for name, text in pages().items()}
    assert {name: missing for name, missing in found.items() if missing} == {}


def test_every_make_target_has_a_comment_and_is_phony() -> None:
    phony = set(re.findall(r"^\.PHONY: (\S+)$", MAKEFILE, re.MULTILINE))
    commented = set(re.findall(r"^([a-z][a-z-]*):.* ## \S", MAKEFILE, re.MULTILINE))
    assert set(TARGET.findall(MAKEFILE)) == commented == phony


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_made_from_a_catalogue_is_fresh(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name](), "run `make docs`"


def test_the_picture_of_the_error_tree_shows_every_error_with_its_status() -> None:
    lines = {
        match.group(1): line
        for line in f"{errors.__doc__}\n{refusals.__doc__}".splitlines()
        if (match := NODE.search(line))
    }
    expected = {error.__name__ for error in tree(errors.GatewayError)}
    assert set(lines) == expected
    statuses = {error.__name__: error.status for error in tree(errors.GatewayError) if "status" in vars(error)}
    assert {name: status for name, status in statuses.items() if f" {status}" not in lines[name]} == {}


def test_every_error_stands_in_the_tree() -> None:
    """An error outside of it would be on no page, and nobody would know its code."""
    names = {error.__name__ for error in tree(errors.GatewayError)} | {"GatewayError"}
    strays = [
        f"{source.name}:{node.lineno} {node.name}"
        for source in python_sources(PACKAGE)
        if source.name not in {"gateway/errors.py", "gateway/refusals.py"}
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef) and names & {base.id for base in node.bases if isinstance(base, ast.Name)}
    ]
    assert strays == []


def test_every_module_that_a_docstring_sends_readers_to_is_there() -> None:
    named = re.findall(r"`([a-z_./-]+)`", gateway.__doc__ or "")
    assert named
    assert [name for name in named if not (ROOT / name).exists() and not (ROOT / "gateway" / name).exists()] == []


def test_dead_references_are_found(tmp_path: Path) -> None:
    text = "[a](no-such.md) `gateway/no_such.py` and `make no-such`, but prose may make any thing"
    assert dead_links("README.md", text=text) == ["no-such.md"]
    assert dead_paths(text) == ["gateway/no_such.py"]
    assert targets_used(text) == {"no-such"}
