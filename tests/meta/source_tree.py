"""What the repository holds, for the tests that read it: modules, functions and the files that git knows.

Reads files only; never imports what it looks at, so that a broken module shows up in the test that is about it.
Paths are absolute inside the repository; module names are dotted.
"""

from __future__ import annotations

import ast
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "gateway"

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Source:
    """One Python file: its path, its text and its tree."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """The path below the repository root, as people write it."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def module(self) -> str:
        """The dotted name under which Python imports the file."""
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def line_count(self) -> int:
        """Lines of the file, the empty ones included."""
        return len(self.text.splitlines())

    def functions(self) -> Iterator[Function]:
        """Every function and method, nested ones too."""
        for node in ast.walk(self.tree):
            if isinstance(node, Function):
                yield node


def _python_files(folder: Path) -> Iterator[Path]:
    """Every Python file; hidden folders are not entered, since what is installed there is large."""
    for base, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "node_modules"]
        yield from (Path(base) / name for name in files if name.endswith(".py"))


def python_sources(folder: Path) -> list[Source]:
    """Every Python file below `folder`, in a fixed order."""
    sources = []
    for path in sorted(_python_files(folder)):
        text = path.read_text(encoding="utf-8")
        sources.append(Source(path=path, text=text, tree=ast.parse(text, filename=str(path))))
    return sources


def known_files() -> list[Path]:
    """Every file that is in git or would be with `git add`, in a fixed order."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    paths = {ROOT / name for name in listed.split("\0") if name}
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())


def length_in_lines(function: Function) -> int:
    """Lines of a function from `def` to its end, less its docstring: a long contract is no long function."""
    end = function.end_lineno or function.lineno
    length = end - function.lineno + 1
    first = function.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        length -= (first.end_lineno or first.lineno) - first.lineno + 1
    return length
