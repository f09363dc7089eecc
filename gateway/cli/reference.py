"""The reference page of the commands, made from the commands themselves.

``python -m gateway.cli.reference > docs/commands.md`` writes it; a test compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

import typer.main

from gateway.cli.exits import MEANINGS
from gateway.cli.main import build_app

_INTRODUCTION: Final = """\
# Commands

<!-- Made by `make docs`; change the help in gateway/cli, not this page. -->

`serve`, `check`, `simulate-engine`, `demo` and `version` work by themselves; every other command asks a running gateway on its operators' address.

- **Which gateway.** `--operators URL`, else `PACEKEEPER_OPERATORS_URL`, else the first of `operators.listen` in the
  configuration. **Which configuration.** `--config FILE`, else `PACEKEEPER_CONFIG`, else `config/gateway.yaml`, else
  `/etc/pacekeeper/gateway.yaml`. **Which token.** `--token-file FILE`, else `PACEKEEPER_TOKEN`, else
  `PACEKEEPER_TOKEN_FILE`, else `admin.token` in the configured `runtime_dir`. These options can stand before or after
  the command.
- **For people and for scripts.** On a terminal tables are cut to its width, and cut ids can be typed back as they are.
  In a pipe they are plain and whole. `--json` prints what the gateway answered, and errors as
  `{"error": {"message", "code", "hint"}}` on standard error. `check --json` prints `{"good": true, ...}` with every
  setting, or `{"good": false, "faults": [...]}`.
- **Words and units.** `–` is "not known", `~` an estimate. Rates are tokens per second, a chunk is never counted as a token.
"""


def render() -> str:
    """The whole page, as Markdown."""
    lines = [_INTRODUCTION, "## Exit codes", "", "| code | meaning |", "|---|---|"]
    lines += [f"| {code.value} | {meaning} |" for code, meaning in MEANINGS]
    for path, command in _commands(typer.main.get_command(build_app()), ("pacekeeper",)):
        lines += [
            "",
            f"## {' '.join(path)}",
            "",
            *_paragraphs(command.help),
            *_usage(path, command),
            *_options(command),
        ]
    return "\n".join(lines).rstrip() + "\n"


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, in the order of the help."""
    below = getattr(command, "commands", None)
    if below is None:
        yield path, command
        return
    for name, inner in below.items():
        yield from _commands(inner, (*path, name))


def _paragraphs(text: str | None) -> list[str]:
    paragraphs = [" ".join(paragraph.split()) for paragraph in (text or "").split("\n\n")]
    return [line for paragraph in paragraphs for line in (paragraph, "")]


def _usage(path: tuple[str, ...], command: Any) -> list[str]:
    names = [param.metavar for param in command.params if param.param_type_name == "argument"]
    return ["```", " ".join((*path, "[OPTIONS]", *names)), "```", ""]


def _options(command: Any) -> list[str]:
    rows = [_row(param) for param in command.params if param.param_type_name in {"option", "argument"}]
    return ["| option | what it does |", "|---|---|", *rows]


def _row(param: Any) -> str:
    if param.param_type_name == "argument":
        return f"| `{param.metavar}` | {param.help} |"
    value = "" if param.is_flag else f" {param.metavar}"
    name = ", ".join(sorted(param.opts, key=len))
    default = f" Default: {param.default}." if param.default not in {None, "", False} else ""
    return f"| `{name}{value}` | {param.help}{default} |"


if __name__ == "__main__":
    sys.stdout.write(render())
