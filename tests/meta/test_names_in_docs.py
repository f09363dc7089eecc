"""Names that the documentation shows as code exist: metrics, settings, endings, commands.

A renamed metric breaks somebody's dashboard, and a page that still has the old name hides it.
"""

from __future__ import annotations

import re

from docs.reference import PAGES
from gateway.core.stream.summary import Ending, Outcome
from gateway.settings.install import Install
from gateway.settings.runtime import Runtime
from gateway.settings.section import Section, children
from gateway.telemetry.events import EVENTS, EventName
from gateway.telemetry.fleet_series import FleetSeries
from gateway.telemetry.request_series import RequestSeries
from gateway.telemetry.series import series_of
from tests.meta.test_docs import CODE, pages

METRIC = re.compile(r"\bpacekeeper_[a-z][a-z_]*")
GENERATED = {f"docs/{name}" for name in PAGES}


def written_by_hand() -> dict[str, str]:
    return {
        name: text for name, text in pages().items() if name not in GENERATED and name.startswith(("docs/", "README"))
    }


def metric_names() -> set[str]:
    return {series.name for catalogue in (RequestSeries, FleetSeries) for series in series_of(catalogue)}


def unknown_metrics(text: str) -> set[str]:
    suffixes = re.compile(r"_(bucket|sum|count)$")
    named = {name for code in CODE.findall(text) for name in METRIC.findall(code)}
    return {name for name in named if name not in metric_names() and suffixes.sub("", name) not in metric_names()}


def setting_paths(section: type[Section], *, under: str = "") -> set[str]:
    paths = set()
    for child in children(section):
        path = f"{under}{child.name}"
        paths.add(path)
        if child.section is not None:
            paths |= setting_paths(child.section, under=f"{path}{'[]' if child.many else ''}.")
    return paths


def unknown_settings(text: str) -> set[str]:
    known = setting_paths(Install) | setting_paths(Runtime)
    tops = {path for path in known if any(other.startswith(f"{path}.") for other in known)}
    shown = [code for code in CODE.findall(text) if re.fullmatch(r"[a-z_]+\.[a-z_]+", code)]
    events = {name.value for name in EventName}
    return {code for code in shown if code.partition(".")[0] in tops and code not in known | events}


def test_every_metric_that_a_page_names_exists() -> None:
    found = {name: unknown_metrics(text) for name, text in written_by_hand().items()}
    assert {name: metrics for name, metrics in found.items() if metrics} == {}


def test_every_setting_that_a_page_names_exists() -> None:
    found = {name: unknown_settings(text) for name, text in pages().items()}
    assert {name: settings for name, settings in found.items() if settings} == {}


def test_the_page_of_the_request_flow_shows_every_ending_and_outcome() -> None:
    shown = set(CODE.findall(pages()["docs/flow-request.md"]))
    assert {ending.value for ending in Ending} - shown == set()
    assert {outcome.value for outcome in Outcome} - shown == set()


def test_every_event_name_has_its_entry_in_the_catalogue() -> None:
    assert set(EVENTS) == set(EventName)


def test_a_name_that_is_gone_is_found() -> None:
    assert unknown_metrics("`pacekeeper_gone_total` and `pacekeeper_requests_total`") == {"pacekeeper_gone_total"}
    assert unknown_settings("`timers.gone_s`, `timers.stall_s`, `request.settled`") == {"timers.gone_s"}
