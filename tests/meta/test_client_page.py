"""The page for clients says everything that a client can meet, and nothing that it cannot.

The field names, codes and headers are a contract: what is missing there is known to nobody, and what is there too much
is waited for in vain.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from docs.reference import tree
from gateway.core.routing.endpoints import ENDPOINTS
from gateway.core.stream.pace import PaceReport
from gateway.core.stream.summary import Flag
from gateway.errors import ConnectFailed, GatewayError
from gateway.proxy.admit import METRICS_MODES
from tests.meta.source_tree import PACKAGE, ROOT, Source, python_sources

CLIENTS = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
MEASUREMENT = (ROOT / "docs" / "measurement.md").read_text(encoding="utf-8")

OWN_HEADER = re.compile(r"\b(X-(?:Gateway|Request)-[A-Z][A-Za-z-]*|Retry-After|Server-Timing|Allow)\b")
MET_BY_CLIENTS = ("proxy", "core/request", "core/admission", "core/routing")
"""Where the flow of a request raises errors."""

OTHER_FLOWS = {"gateway/proxy/link.py", "gateway/core/routing/evidence.py"}
"""The link to control, and what control makes of failures: no request passes there."""


def rows(page: str, heading: str) -> dict[str, list[str]]:
    """The table rows below ``heading``, the first code of each row -> its cells."""
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in section.splitlines()]
    return {row[0].strip("`"): row for row in cells if row and re.fullmatch(r"`[^`]+`", row[0])}


def sources() -> list[Source]:
    found = [source for folder in MET_BY_CLIENTS for source in python_sources(PACKAGE / folder)]
    assert {source.name for source in found} >= OTHER_FLOWS
    return [source for source in found if source.name not in OTHER_FLOWS]


def names_in(source: Source) -> set[str]:
    """What the code itself names, imports left out: an error that is only imported is met by nobody."""
    return {node.id for node in ast.walk(source.tree) if isinstance(node, ast.Name)}


def told_errors() -> set[type[GatewayError]]:
    """The errors that the request flow makes; one of a failed connection is told as `nothing_serving`."""
    named = {name for source in sources() for name in names_in(source)}
    return {error for error in tree(GatewayError) if error.__name__ in named} - {GatewayError, ConnectFailed}


def headers_in(source: Source) -> set[str]:
    """The headers of our own in text that is no docstring."""
    docstrings = {
        ast.get_docstring(node, clean=False)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }
    values = [node.value for node in ast.walk(source.tree) if isinstance(node, ast.Constant)]
    texts = [v.decode("latin-1") if isinstance(v, bytes) else v for v in values if isinstance(v, bytes | str)]
    return {name for text in texts if text not in docstrings for name in OWN_HEADER.findall(text)}


def test_every_field_of_the_report_is_defined_and_no_other() -> None:
    defined = [name for name, row in rows(CLIENTS, "The pace of an answer").items() if len(row) == 3]
    modes = sorted(METRICS_MODES)
    assert [name for name in defined if name not in modes] == list(PaceReport.__struct_fields__)


def test_every_mode_of_the_report_stands_there_and_no_other() -> None:
    section = rows(CLIENTS, "The pace of an answer")
    assert {name for name in section if name in METRICS_MODES} == METRICS_MODES


def test_every_flag_is_explained_and_no_other() -> None:
    assert list(rows(MEASUREMENT, "Flags")) == [flag.value for flag in Flag]


def test_every_error_that_a_client_can_meet_stands_there_with_its_status_and_no_other() -> None:
    shown = {code: row[1] for code, row in rows(CLIENTS, "Errors").items()}
    assert shown == {error.code: str(error.status) for error in told_errors()}


def test_errors_that_may_be_tried_again_are_marked_so() -> None:
    """The tree's own word counts where nothing was accepted; the page may add failures that time can mend."""
    again = {code for code, row in rows(CLIENTS, "Errors").items() if row[2] == "yes"}
    assert {error.code for error in told_errors() if error.retryable} <= again


def test_every_header_of_our_own_stands_there_and_no_other() -> None:
    written = {name for source in python_sources(PACKAGE / "proxy") for name in headers_in(source)}
    shown = rows(CLIENTS, "Request headers") | rows(CLIENTS, "Response headers")
    assert written >= {"X-Request-Id", "X-Gateway-Error", "X-Gateway-Metrics"}, "the search itself works"
    assert written - set(shown) == set()
    assert {name for name in shown if name.startswith("X-Gateway-")} - written == set()


def test_every_endpoint_stands_there_with_its_verbs_and_no_other() -> None:
    shown = {path: row[1] for path, row in rows(CLIENTS, "Endpoints").items()}
    assert shown == {path: ", ".join(sorted(endpoint.methods)) for path, endpoint in ENDPOINTS.items()}


def test_the_report_s_docstring_sends_readers_to_a_page_that_is_there() -> None:
    source = (PACKAGE / "core" / "stream" / "pace.py").read_text(encoding="utf-8")
    named = re.findall(r"docs/[a-z-]+\.md", ast.get_docstring(ast.parse(source)) or "")
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_a_table_is_read_by_its_first_codes(tmp_path: Path) -> None:
    page = "\n## One\n\n| a | b |\n|---|---|\n| `x` | y |\n| no | z |\n\n## Two\n\n| `w` | v |\n"
    assert rows(page, "One") == {"x": ["`x`", "y"]}
