"""YAML text -> plain data, and for every key and value the place where it stands.

Not a station.  Reads the core schema of YAML 1.2 only (``yes``, ``on`` and ``12:30`` are text here) and refuses what
hides mistakes: doubled keys, tags, keys that are not text.  Builds no objects from tags.  It knows nothing of what the
keys mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from gateway.settings.faults import Fault, Path

MAX_TEXT_BYTES: Final = 1024 * 1024
MAX_NODES: Final = 100_000
MAX_DEPTH: Final = 64

_TAG: Final = "tag:yaml.org,2002:"

_SCALARS: Final = (
    ("null", "~nN", re.compile(r"^(?:~|null|Null|NULL|)$")),
    ("bool", "tTfF", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")),
    ("int", "-+0123456789", re.compile(r"^[-+]?[0-9]+$")),
    (
        "float",
        "-+.0123456789",
        re.compile(
            r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN))$"
        ),
    ),
)


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """PyYAML's table: first character of a plain scalar -> the tags to try."""
    table: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for kind, firsts, pattern in _SCALARS:
        for first in (*firsts, *([""] if kind == "null" else [])):
            table.setdefault(first, []).append((_TAG + kind, pattern))
    return table


class _CoreLoader(yaml.SafeLoader):
    """The scanner and composer of PyYAML with the plain scalars of the 1.2 core schema."""

    yaml_implicit_resolvers = _resolvers()


@dataclass(frozen=True, slots=True)
class Spot:
    """Line and column, from 1."""

    line: int
    column: int


@dataclass(slots=True)
class Document:
    """What a text says: ``data`` (the root mapping), the spots of keys and values by path, and what is wrong with it.

    Owned by :func:`read` while it is made; read-only afterwards.
    """

    name: str
    data: dict[str, Any] = field(default_factory=dict)
    keys: dict[Path, Spot] = field(default_factory=dict)
    values: dict[Path, Spot] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    nodes: int = 0
    max_nodes: int = MAX_NODES

    def fault(self, path: Path, message: str, *, at_key: bool = False) -> Fault:
        """A fault at ``path``; where the path does not exist, the place is that of its nearest parent."""
        spot = (self.keys if at_key else self.values).get(path)
        known = path
        while spot is None and known:
            spot = self.keys.get(known) or self.values.get(known)
            known = known[:-1]
        spot = spot or Spot(1, 1)
        return Fault(self.name, path, message, line=spot.line, column=spot.column)


def read(text: str, name: str, *, max_bytes: int = MAX_TEXT_BYTES, max_nodes: int = MAX_NODES) -> Document:
    """Compose ``text``; ``name`` is what faults call it.  Never raises: see ``Document.faults``."""
    document = Document(name, max_nodes=max_nodes)
    if len(text.encode(errors="surrogatepass")) > max_bytes:
        document.faults.append(Fault(name, (), f"over {max_bytes // 1024} KiB: this is no configuration file"))
        return document
    try:
        root = yaml.compose(text, Loader=_CoreLoader)
    except (yaml.YAMLError, RecursionError) as error:
        document.faults.append(_syntax_fault(error, name))
        return document
    match root:
        case None:
            pass
        case yaml.MappingNode():
            document.data = _mapping(document, root, ())
        case _:
            spot = _spot(root.start_mark)
            message = 'the file must be a mapping of sections ("clients: ...")'
            document.faults.append(Fault(name, (), message, line=spot.line, column=spot.column))
    return document


def _spot(mark: yaml.Mark) -> Spot:
    return Spot(mark.line + 1, mark.column + 1)


def _value(document: Document, node: yaml.Node, path: Path) -> Any:
    """The plain value of ``node``; notes its spot and what is wrong on the way."""
    document.values.setdefault(path, _spot(node.start_mark))
    document.nodes += 1
    if document.nodes > document.max_nodes or len(path) > MAX_DEPTH:
        if document.nodes <= document.max_nodes + 1 or len(path) == MAX_DEPTH + 1:
            document.faults.append(document.fault(path, "too large or too deep (an alias that holds itself?)"))
        return None
    match node:
        case yaml.MappingNode():
            return _mapping(document, node, path)
        case yaml.SequenceNode():
            return [_value(document, item, (*path, at)) for at, item in enumerate(node.value)]
        case _:
            return _scalar(document, node, path)


def _mapping(document: Document, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key, child in _pairs(document, node, path):
        data[key] = _value(document, child, (*path, key))
    return data


def _pairs(document: Document, node: yaml.MappingNode, path: Path) -> Iterator[tuple[str, yaml.Node]]:
    """Key and value node of every entry that can be used."""
    seen: dict[str, Spot] = {}
    for key_node, child in node.value:
        spot = _spot(key_node.start_mark)
        if not isinstance(key_node, yaml.ScalarNode):
            document.faults.append(
                Fault(document.name, path, "a key must be plain text", line=spot.line, column=spot.column)
            )
            continue
        key = str(key_node.value)
        where = (*path, key)
        if key in seen:
            message = f"stands twice; first on line {seen[key].line}"
            document.faults.append(Fault(document.name, where, message, line=spot.line, column=spot.column))
            continue
        seen[key] = spot
        document.keys.setdefault(where, spot)
        yield key, child


def _scalar(document: Document, node: yaml.Node, path: Path) -> Any:
    text = str(node.value)
    match node.tag.removeprefix(_TAG):
        case "str":
            return text
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            return int(text) if len(text) <= 20 else text
        case "float":
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        case _:
            document.faults.append(document.fault(path, "a YAML tag (!...) is not allowed; write the plain value"))
            return None


def _syntax_fault(error: Exception, name: str) -> Fault:
    """PyYAML's complaint in our words, with the place but without the text that stands there."""
    match error:
        case yaml.MarkedYAMLError(problem=problem, problem_mark=mark) if mark is not None:
            spot = _spot(mark)
            message = _plainly(str(problem))
            began = error.context_mark
            if error.context and began is not None and began.line != mark.line:
                message += f" ({error.context} that began on line {began.line + 1})"
            return Fault(name, (), f"not valid YAML: {message}", line=spot.line, column=spot.column)
        case yaml.reader.ReaderError():
            return Fault(name, (), f"not valid YAML: a character that is not allowed, at position {error.position + 1}")
        case RecursionError():
            return Fault(name, (), "not valid YAML: nested too deeply")
        case _:
            return Fault(name, (), "not valid YAML")


def _plainly(problem: str) -> str:
    if "'\\t'" in problem:
        return "a tab; YAML is indented with spaces"
    if problem.startswith("mapping values are not allowed"):
        return 'a ": " where none can stand; is the line indented right, or does a value need quotes?'
    if problem.startswith("but found another document"):
        return 'a second document ("---"); one file holds one configuration'
    return problem
