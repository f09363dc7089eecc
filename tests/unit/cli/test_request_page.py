"""One request for people."""

from __future__ import annotations

import io
import time
from typing import Any

import msgspec
import pytest

from gateway.cli.request_page import show
from gateway.cli.screen import Screen
from gateway.core.link.messages import RequestRecord
from gateway.core.stream.summary import Ending, EngineError, Exactness, Outcome, StreamSummary
from tests.fakes.admin_server import record, thinking_record
from tests.fakes.terminal import Terminal

THINKING = """\
ok 3f2a  POST chat  kimi-k2.5 on a
accepted {at} (3 s ago)

  0 s .----~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~#################################. 6.82 s
      .  0.002 s  receiving and sending on
      -   0.41 s  waiting for the first token
      ~   3.19 s  thinking
      #   3.20 s  answering
      .   0.01 s  ending

  INSTANT        AFTER
                     s
  admitted       0.000  left the gateway's queue
  sent           0.002  written to the backend
  headers        0.009  the backend's status line
  first token    0.412  TTFT
  first visible  3.604  TTFV
  last token     6.801
  ended          6.815  complete

  prompt      123 tokens (100 cached)
  answer      512 tokens = 256 reasoning (50 %) + 256 content, the split estimated
  tok/s       decode 80.1 · reasoning ~80.0 · visible ~80.2 · effective visible ~40.0
  chunks      512; gaps in ms: p50 12.4, p99 14.2, max 31.1
  engine says inter-token latency 12.48 ms, queue 0.4 ms
  finished by stop
  flags       estimated_split
  response    status 200, stream, 148 KiB
  request     1.8 KiB, received in 0.2 ms
  backend     1 attempt, alone on it
  gateway     own share 1.1 ms, held at most 0.2 ms, client blocked 0.0 ms
"""


def shown(given: RequestRecord, screen: Screen | None = None) -> str:
    stream = io.StringIO()
    show(given, screen or Screen(stream), now=given.accepted_wall + 3)
    return stream.getvalue()


def summarised(**more: Any) -> str:
    return shown(record(0.0, "x", summary=StreamSummary(**more)))


def test_a_stream_that_thinks_shows_everything() -> None:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(1_700_000_000))
    assert shown(thinking_record(1_700_000_000.0, "3f2a")) == THINKING.format(at=at)


def test_a_terminal_gets_blocks_and_no_line_is_too_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    for width in (60, 80, 100):
        terminal = Terminal(monkeypatch)
        monkeypatch.setenv("COLUMNS", str(width))
        shown(thinking_record(0.0, "3f2a"), Screen(terminal))
        assert "▒▒▒▒" in terminal.getvalue()
        assert "████" in terminal.getvalue()
        assert max(map(len, terminal.text.splitlines())) <= width


def test_a_request_that_was_rejected_shows_what_there_is() -> None:
    page = shown(
        record(0.0, "x", model="", backend="", attempts=0, status=404, outcome=Outcome.REJECTED, ending=Ending.REJECTED)
    )
    assert page.startswith("rejected x  POST chat  no model on no backend\n")
    assert "  backend     0 attempts\n" in page
    assert "tok/s" not in page
    assert "admitted" not in page
    assert "  key " not in page


def test_a_request_that_left_the_queue_to_be_refused_shows_when_and_whose_it_was() -> None:
    page = shown(record(0.0, "x", queue_s=1.5, sent_s=None, key_id="team-a"))
    assert "  admitted  1.500  left the gateway's queue\n" in page
    assert "  key         team-a\n" in page


def test_a_request_without_a_length_has_no_bar() -> None:
    assert "0 s " not in shown(record(0.0, "x", total_s=0.0)).split("INSTANT")[0].replace("3 s ago", "")


def test_an_error_is_named() -> None:
    page = shown(
        record(
            0.0, "x", error_code="backend_died", summary=StreamSummary(error=EngineError(type="Internal", code="500"))
        )
    )
    assert "  error       backend_died\n" in page
    assert "  in the answer Internal 500\n" in page


def test_an_estimated_total_says_so_and_an_absent_split_is_left_out() -> None:
    page = summarised(completion_tokens=9, total_exactness=Exactness.ESTIMATED)
    assert "  answer      ~9 tokens, estimated from the length of the text\n" in page
    assert "  tok/s       not measured\n" in page
    assert "  tok/s       decode ~9.0\n" in summarised(decode_tps=9.0, total_exactness=Exactness.ESTIMATED)
    assert "  prompt      – tokens\n" in page


def test_a_split_without_a_share_and_engine_figures_without_values_are_shown() -> None:
    summary = msgspec.structs.replace(
        StreamSummary(completion_tokens=3, reasoning_tokens=1, content_tokens=2, split_exactness=Exactness.EXACT),
        engine=msgspec.convert({}, type(thinking_record(0.0, "x").summary.engine)),  # type: ignore[union-attr]
    )
    page = shown(record(0.0, "x", summary=summary))
    assert "  answer      3 tokens = 1 reasoning + 2 content\n" in page
    assert "  engine says inter-token latency – ms, queue – ms\n" in page
