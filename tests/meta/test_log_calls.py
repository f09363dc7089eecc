"""Every call of the standard library's log names an event of the catalogue, and gives it only fields that it has.

So no line has words that nobody can match, and none can quote a request: a message is never put together in place.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from gateway.telemetry.events import EVENTS, EventName
from tests.meta.source_tree import PACKAGE, Source, python_sources

METHODS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
DEFECT = {"error", "place"}
ADAPTERS = {"gateway/telemetry/logs.py", "gateway/telemetry/eventlog.py"}  # they hand on what others told


@dataclass(frozen=True, slots=True)
class LogCall:
    """One call: where, the event's name ("" when it is no literal), and its fields (None: not written out)."""

    place: str
    name: str
    fields: set[str] | None


def log_calls(source: Source) -> Iterator[LogCall]:
    for node in ast.walk(source.tree):
        match node:
            case ast.Call(func=ast.Attribute(value=receiver, attr=method)) if method in METHODS and is_log(receiver):
                message = node.args[1:] if method == "log" else node.args
                match message:
                    case [ast.Constant(value=str() as name)]:
                        pass
                    case _:
                        name = ""
                yield LogCall(f"{source.name}:{node.lineno}", name, fields_of(node, defect=method == "exception"))


def is_log(receiver: ast.expr) -> bool:
    match receiver:
        case ast.Name(id="log" | "logger" | "logging") | ast.Attribute(attr="log" | "_log" | "logger" | "_logger"):
            return True
        case ast.Call(func=ast.Attribute(attr="getLogger")):
            return True
        case _:
            return False


def fields_of(call: ast.Call, *, defect: bool) -> set[str] | None:
    fields = set(DEFECT) if defect else set()
    for keyword in call.keywords:
        match keyword:
            case ast.keyword(arg="extra", value=ast.Dict(keys=keys)):
                fields |= {key.value if isinstance(key, ast.Constant) else "?" for key in keys}
            case ast.keyword(arg="exc_info"):
                fields |= DEFECT
            case _:
                return None
    return fields


def wrong(calls: Iterator[LogCall]) -> dict[str, str]:
    found = {}
    for call in calls:
        if call.name not in set(EventName):
            found[call.place] = f"no event of the catalogue: {call.name or 'not a literal'}"
        elif call.fields is None or not call.fields <= set(EVENTS[EventName(call.name)].fields):
            found[call.place] = f"fields that {call.name} does not have"
    return found


def test_every_call_of_a_log_names_an_event_of_the_catalogue_with_its_fields() -> None:
    sources = [source for source in python_sources(PACKAGE) if source.name not in ADAPTERS]
    calls = [call for source in sources for call in log_calls(source)]
    assert len(calls) >= 20
    assert set(wrong(iter(calls))) == set()


def test_every_event_of_the_catalogue_is_told_somewhere() -> None:
    called = {call.name for source in python_sources(PACKAGE) for call in log_calls(source)}
    by_name = {
        EventName[node.attr].value
        for source in python_sources(PACKAGE)
        if not source.name.endswith("_events.py")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "EventName"
        if source.name != "gateway/telemetry/events.py"
    }
    by_tag = {  # the store's events are structs with their name as tag
        node.value.value
        for source in python_sources(PACKAGE / "store")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.keyword) and node.arg == "tag" and isinstance(node.value, ast.Constant)
    }
    assert {name.value for name in EventName} - called - by_name - by_tag == set()


def test_what_is_wrong_is_found() -> None:
    text = """
log.info("supervisor.ended", extra={"status": 0})
log.info("supervisor.ended", extra={"answer": 0})
log.info(f"request {body}")
logging.getLogger(__name__).exception("a request met a defect")
self._log.warning("link.gone")
log.log(level, "supervisor.decided", extra={"reason": "", "mode": ""})
log.error("task.failed", extra=more)
"""
    found = wrong(log_calls(Source(path=PACKAGE / "made.py", text=text, tree=ast.parse(text))))
    assert sorted(int(place.partition(":")[2]) for place in found) == [3, 4, 5, 6, 8]
