"""The reference page of the configuration, made from the settings themselves.

Not a station.  ``python -m gateway.settings.reference > docs/configuration.md`` writes it; a test compares the two, so
that no key is without its unit, default and reason.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from pydantic_core import PydanticUndefined

from gateway.settings.install import Install
from gateway.settings.runtime import Runtime
from gateway.settings.section import Child, children
from gateway.settings.types import Kind

_INTRODUCTION: Final = """\
# Configuration

<!-- Made by `make docs`; change the descriptions, not this page. -->

One YAML file, given as `pacekeeper serve --config FILE`; `config/gateway.yaml` is the default with comments, and
`config/examples/` holds more, among them [whole deployments](deployments.md). `pacekeeper check FILE` says what a file
means, or everything that is wrong with it:

```
config/gateway.yaml:12:5 pools[0].backends[1].urll: unknown key; did you mean "url"?
```

- **Environment.** `PACEKEEPER_` and the path with two underscores between the keys sets one value and wins over the
  file: `PACEKEEPER_TIMERS__STALL_S=60`. Lists take commas or JSON (`PACEKEEPER_CLIENTS__LISTEN=127.0.0.1:8080,[::1]:8080`),
  sections take JSON (`PACEKEEPER_POOLS='[{"name": ...}]'`). An empty variable counts as not set; one that sets nothing
  is a fault, except `PACEKEEPER_CONFIG`, `PACEKEEPER_OPERATORS_URL`, `PACEKEEPER_TOKEN` and `PACEKEEPER_TOKEN_FILE`,
  which are options of the [commands](commands.md), the names that `api_key_env` refers to, and what Kubernetes sets
  for a Service of that name.
- **Units.** Names that end in `_s` are seconds. Sizes are bytes, as a number or with a unit: `64 MiB` (KiB, MiB, GiB, TiB).
- **Paths.** Relative paths count from the directory that the gateway is started in, not from the file.
- **YAML.** Plain values follow YAML 1.2: `yes`, `on` and `12:30` are text. A doubled key, a tag or an unknown key is a fault.
- **Reload.** `SIGHUP` and `POST /admin/v1/config/reload` read the file again and apply its second part, all or nothing;
  with a fault in it the old settings stay. The environment is that of the start.
"""

_PARTS: Final = (
    (Install, "Fixed while the gateway runs", "A change here takes a restart; a reload names it and leaves it."),
    (Runtime, "Changed by a reload", "Requests that are being answered are not disturbed."),
)


def render() -> str:
    """The whole page, as Markdown."""
    lines = [_INTRODUCTION]
    for part, title, text in _PARTS:
        lines += [f"## {title}", "", text, ""]
        lines += _table([child for child in children(part) if child.section is None])
        for child in children(part):
            if child.section is not None:
                lines += _section(child, under="")
    return "\n".join(lines).rstrip() + "\n"


def _section(child: Child, *, under: str) -> list[str]:
    """Heading, text and table of the section below ``child``, then those below it."""
    section = child.section
    if section is None:
        return []
    path = f"{under}{child.name}{'[]' if child.many else ''}"
    text = " ".join((section.__doc__ or "").split())
    if child.many:
        text += f" {child.field.description}"
    lines = [f"### `{path}`", "", text, ""]
    lines += _table([below for below in children(section) if below.section is None])
    for below in children(section):
        lines += _section(below, under=f"{path}.")
    return lines


def _table(rows: list[Child]) -> list[str]:
    if not rows:
        return []
    lines = ["| key | value | default | what and why |", "|---|---|---|---|"]
    for child in rows:
        default = f"`{default_text(child)}`" if default_text(child) else "required"
        cells = (f"`{child.name}`", _kind(child), default, child.field.description or "")
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return [*lines, ""]


def _kind(child: Child) -> str:
    """What the value is: the words of its type, or its choices."""
    if child.many:
        return f"list: {_words(get_args(child.field.annotation)[0], ())}"
    return _words(child.field.annotation, child.field.metadata)


def _words(annotation: Any, metadata: Any) -> str:
    if get_origin(annotation) is Annotated:
        annotation, *metadata = get_args(annotation)
    if words := next((item.words for item in metadata if isinstance(item, Kind)), ""):
        return words
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(annotation))
    raise TypeError(f"no words for {annotation}")


def default_text(child: Child) -> str:
    """The default as it would stand in the file, or "" where the key is required."""
    value = child.field.default
    return "" if value is PydanticUndefined else _spelled(value, is_size=Kind("size") in child.field.metadata)


def _spelled(value: Any, *, is_size: bool) -> str:
    """``value`` as it would stand in the file."""
    match value:
        case bool():
            return str(value).lower()
        case tuple():
            return f"[{', '.join(chr(34) + str(item) + chr(34) for item in value)}]"
        case int() if is_size:
            return size(value)
        case float():
            return f"{value:g}"
        case str() | Path():
            return str(value) or '""'
        case _:
            return str(value)


def size(count_bytes: int) -> str:
    """A size with the largest unit that leaves it whole: ``64 MiB``."""
    for unit, factor in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if count_bytes and count_bytes % factor == 0:
            return f"{count_bytes // factor} {unit}"
    return str(count_bytes)


if __name__ == "__main__":
    sys.stdout.write(render())
