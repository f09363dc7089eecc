"""The log: one line an event, in the form that was asked for, and nothing that begins a line of its own."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gateway.telemetry.bus import Bus
from gateway.telemetry.eventlog import EventLog
from gateway.telemetry.events import EventName, Level
from gateway.telemetry.lines import encode_fields
from gateway.telemetry.logs import Form, LibraryHandler, make_log, open_writer

NASTY = 'a\nb\r\x1b[31m"quoted" \u2028 ü'


class Lines(list[bytes]):
    def write(self, line: bytes) -> None:
        self.append(line)


def test_a_json_line_is_one_object_with_time_level_and_event_first() -> None:
    lines = Lines()
    fields = {"backend": "a", "reason": NASTY, "models": ("x",)}
    make_log(lines, format="json", level="info").tell(Level.WARNING, "backend.state", encode_fields(fields))
    event = json.loads(lines[0])
    assert list(event)[:3] == ["ts", "level", "event"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", event.pop("ts"))
    assert event == {"level": "warning", "event": "backend.state", "backend": "a", "reason": NASTY, "models": ["x"]}
    assert b"\n" not in lines[0]


def test_a_console_line_is_one_line_whatever_stands_in_it() -> None:
    lines = Lines()
    fields = {"reason": NASTY, "faults": (NASTY,)}
    make_log(lines, format="console", level="info").tell(Level.WARNING, "backend.state", encode_fields(fields))
    assert len(lines[0].decode().splitlines()) == 1
    assert b"\x1b" not in lines[0]


def test_what_cannot_be_encoded_is_still_told() -> None:
    for format in ("json", "console"):
        lines = Lines()
        fields = {"error": ValueError("v"), "odd": object}
        make_log(lines, format=format, level="info").tell(Level.INFO, "x", encode_fields(fields))
        assert len(lines) == 1


def test_a_line_is_stamped_with_the_time_of_its_telling() -> None:
    lines = Lines()
    log = make_log(lines, format="json", level="info", now_wall=lambda: 1_790_000_000.25)
    log.tell(Level.INFO, "control.stopped", b"{}")
    assert lines == [b'{"ts":"2026-09-21T14:13:20.250000Z","level":"info","event":"control.stopped"}']


def test_lines_of_one_second_and_of_the_next_have_their_own_times() -> None:
    lines, times = Lines(), iter([0.0, 0.5, 0.999999, 1.0, 60.25])
    log = make_log(lines, format="json", level="info", now_wall=lambda: next(times))
    for _ in range(5):
        log.tell(Level.INFO, "x", b"{}")
    stamps = [json.loads(line)["ts"].removeprefix("1970-01-01T00:") for line in lines]
    assert stamps == ["00:00.000000Z", "00:00.500000Z", "00:00.999999Z", "00:01.000000Z", "01:00.250000Z"]


@pytest.mark.parametrize("format", ["json", "console"])
def test_less_severe_events_than_asked_for_are_left_out(format: Form) -> None:
    lines = Lines()
    log = make_log(lines, format=format, level="warning")
    for level in Level:
        log.tell(level, level.value, b"{}")
    assert len(lines) == 2
    assert b"warning" in lines[0]
    assert b"error" in lines[1]


def test_an_event_goes_to_the_log_at_its_level_and_to_the_live_feed() -> None:
    lines, bus = Lines(), Bus()
    events = EventLog(make_log(lines, format="json", level="debug"), bus)
    events.emit(EventName.POOL_SERVING, pool="p", after_s=1.5)
    events.emit(EventName.SNAPSHOT_PUBLISHED, generation=3, workers=1, serving=1)
    assert [(json.loads(line)["level"], json.loads(line)["event"]) for line in lines] == [
        ("warning", "pool.serving"),
        ("debug", "snapshot.published"),
    ]
    (item,) = bus.since(0)
    assert (item.name, json.loads(item.data)) == ("pool.serving", {"pool": "p", "after_s": 1.5})


def test_a_backend_that_comes_is_news_and_one_that_is_ejected_a_warning() -> None:
    lines = Lines()
    events = EventLog(make_log(lines, format="json", level="debug"), Bus())
    for was, state in (("unknown", "serving"), ("serving", "ejected"), ("ejected", "serving"), ("serving", "draining")):
        events.emit(EventName.BACKEND_STATE, backend="a", pool="p", state=state, was=was, reason="")
    assert [json.loads(line)["level"] for line in lines] == ["info", "warning", "info", "info"]


@contextmanager
def handled(lines: Lines, name: str) -> Iterator[logging.Logger]:
    logger = logging.getLogger(name)
    handler = LibraryHandler(make_log(lines, format="json", level="debug"))
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield logger
    finally:
        logger.removeHandler(handler)
        logger.propagate = True


def failing() -> None:
    raise ValueError("secret prompt")


def test_a_library_speaks_under_one_name_shortened_and_without_the_words_of_its_exception() -> None:
    lines = Lines()
    with handled(lines, "somelibrary.part") as logger:
        try:
            failing()
        except ValueError:
            logger.exception("went wrong %s", "x" * 1000 + "\nsecret", extra={"slot": 3})
        logger.debug("chatter")
    (line,) = lines
    event = json.loads(line)
    assert event["event"] == "library.message"
    assert event["logger"] == "somelibrary.part"
    assert event["message"].startswith("went wrong")
    assert len(event["message"]) == 500
    assert event["severity"] == "error"
    assert event["details"]["slot"] == 3
    assert event["details"]["error"] == "ValueError"
    assert re.fullmatch(r".*test_logs\.py:\d+", event["details"]["place"])
    assert b"secret" not in line


def test_a_plain_message_of_a_library_has_no_details() -> None:
    lines = Lines()
    with handled(lines, "somelibrary") as logger:
        logger.warning("hm")
    assert "details" not in json.loads(lines[0])


def test_our_own_parts_speak_under_their_own_names() -> None:
    lines = Lines()
    with handled(lines, "gateway.link") as logger:
        logger.warning("link.refused", extra={"reason": "no hello"})
        logger.error("link.session_failed", exc_info=ValueError("never raised"))
    first, second = (json.loads(line) for line in lines)
    assert (first["level"], first["event"], first["reason"]) == ("warning", "link.refused", "no hello")
    assert (second["level"], second["error"], second["place"]) == ("error", "ValueError", "")


@pytest.mark.parametrize("format", ["json", "console"])
def test_lost_lines_are_reported_in_the_form_of_the_log(format: str) -> None:
    read_end, write_end = os.pipe()
    writer = open_writer(write_end, format=format)  # type: ignore[arg-type]
    writer._lost(7)
    writer.write(b"next")
    writer.close()
    lines = os.read(read_end, 65536).splitlines()
    os.close(read_end)
    os.close(write_end)
    assert lines[0] == b"next"
    assert b"log.dropped" in lines[1]
    assert b"7" in lines[1]
