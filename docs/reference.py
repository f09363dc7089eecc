"""Write the reference pages from the catalogues in the code: admin API, commands, settings, metrics, errors, events.

`make docs` runs it; a test fails when a page is older than the code.  Pages that are written here are never edited by
hand.  Errors and log events are rendered here, the rest beside what it describes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from gateway import refusals
from gateway.admin import reference as admin
from gateway.cli import reference as commands
from gateway.errors import GatewayError
from gateway.settings import reference as settings
from gateway.telemetry import reference as metrics
from gateway.telemetry.events import EVENTS, EventSpec

FOLDER = Path(__file__).resolve().parent
MADE = "<!-- Made by `make docs` from {source}; do not edit. -->\n"


def cell(text: str) -> str:
    """`text` as one table cell: one line, and no bar that would end it."""
    return " ".join(text.split()).replace("|", "\\|").replace("``", "`")


def tree(error: type[GatewayError]) -> Iterator[type[GatewayError]]:
    """Everything below an error, in the order of the source."""
    for child in error.__subclasses__():
        if child.__module__ in {GatewayError.__module__, refusals.__name__}:
            yield child
            yield from tree(child)


def first_sentence(error: type[GatewayError]) -> str:
    """What the class says about itself, in one line."""
    return cell((error.__doc__ or "").partition("\n\n")[0])


def errors() -> str:
    """The page of every error that a client, an operator or a script can meet."""
    rows = [
        f"| `{error.code}` | {error.status} | {error.fault} | {'yes' if error.retryable else 'no'} "
        f"| `{error.type}` | {first_sentence(error)} |"
        for error in tree(GatewayError)
        if "code" in vars(error)
    ]
    return "\n".join(
        [
            "# Errors",
            "",
            MADE.format(source="`gateway/errors.py` and `gateway/refusals.py`"),
            "Errors of the gateway itself come in the OpenAI envelope, with the header `X-Gateway-Error: 1`:",
            "",
            "```json",
            '{"error": {"message": "...", "type": "...", "param": null, "code": "..."}}',
            "```",
            "",
            "`code` is stable: scripts may match it. An error of a backend is relayed as the backend sent it, without that",
            "header. After the first byte of a stream an error is an event of the same shape, then the end marker.",
            "Commands end with exit code 2 for an operator's fault and 1 for a fault of the gateway.",
            "",
            "| code | status | fault | retry | type | meaning |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def levels(spec: EventSpec) -> str:
    """How urgent an event is, with the cases in which it is more so."""
    values: dict[tuple[str, str], list[str]] = {}
    for (name, value), level in spec.graver.items():
        values.setdefault((level, name), []).append(f"`{value}`")
    graver = [f"{level} when `{name}` is {' or '.join(those)}" for (level, name), those in values.items()]
    return ", ".join([spec.level, *graver])


def events() -> str:
    """The page of every log event with its fields."""
    parts = [
        "# Log events",
        "",
        MADE.format(source="`gateway/telemetry/events.py`"),
        "One wide event per request, one event per decision, on standard error: JSON lines, or text for people",
        "(`log.format`). No event holds text of a prompt or an answer, a key or a token. Fields without a value are left",
        "out. Events of the supervisor and of workers say in `process` who tells them.",
        "",
    ]
    for name, spec in EVENTS.items():
        parts += [f"## `{name}`", "", f"{levels(spec)}. {spec.when}", ""]
        if spec.fields:
            parts += ["| field | meaning |", "|---|---|"]
            parts += [f"| `{field}` | {cell(meaning)} |" for field, meaning in spec.fields.items()]
            parts.append("")
    return "\n".join(parts)


PAGES: dict[str, Callable[[], str]] = {
    "admin-api.md": admin.render,
    "commands.md": commands.render,
    "configuration.md": settings.render,
    "errors.md": errors,
    "events.md": events,
    "metrics.md": metrics.render,
}


def main() -> int:
    """Write every page; 0 always."""
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
