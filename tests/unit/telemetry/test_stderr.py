"""Logging of supervisor and workers: one line an event, fields from extra, exceptions without their messages."""

from __future__ import annotations

import json
import logging
import os

import pytest

from gateway.telemetry.stderr import EventLines, stderr_logging


class Kept:
    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def write(self, line: bytes) -> None:
        self.lines.append(line)


@pytest.fixture
def log():
    """A logger that leads nowhere else."""
    return logging.Logger("gateway.test")  # noqa: LOG001 - one of its own, without the root's handlers


def told(log: logging.Logger, form: str = "json") -> Kept:
    kept = Kept()
    log.addHandler(EventLines(kept, process="worker 0", form=form))
    return kept


def test_a_line_holds_the_event_who_tells_it_and_the_fields(log) -> None:
    kept = told(log)
    log.warning("link.lost", extra={"reason": 'a "reset"\n', "count": 2, "path": os.PathLike})
    (line,) = map(json.loads, kept.lines)
    assert line.pop("ts").endswith("Z")
    assert line.pop("path").startswith("<class")
    assert line == {
        "level": "warning",
        "event": "link.lost",
        "process": "worker 0",
        "reason": 'a "reset"\n',
        "count": 2,
    }
    assert b"\n" not in kept.lines[0]


def test_an_exception_is_told_by_type_and_place_and_never_by_its_message(log) -> None:
    kept = told(log)
    try:
        raise ValueError("text of a prompt")
    except ValueError as error:
        log.error("task.failed", exc_info=error)
    (line,) = map(json.loads, kept.lines)
    assert line["error"] == "ValueError"
    assert "test_stderr.py:" in line["place"]
    assert b"prompt" not in kept.lines[0]


def test_a_library_speaks_under_one_name_and_its_small_talk_is_left_out() -> None:
    kept = Kept()
    library = logging.Logger("asyncio")  # noqa: LOG001 - one of its own, without the root's handlers
    library.addHandler(EventLines(kept, process="worker 0", form="json"))
    library.info("Using selector: EpollSelector")
    library.error("Task exception was never retrieved\nfuture: <Task exception=ValueError('text of a prompt')>")
    (line,) = map(json.loads, kept.lines)
    del line["ts"]
    assert line == {
        "level": "warning",
        "event": "library.message",
        "process": "worker 0",
        "logger": "asyncio",
        "message": "Task exception was never retrieved",
        "severity": "error",
    }


def test_lines_for_people_cannot_be_forged(log) -> None:
    kept = told(log, "console")
    log.info("supervisor.decided", extra={"reason": "one\ntwo\x1b[2J"})
    (line,) = kept.lines
    assert b"info    supervisor.decided  process=worker 0  reason=one\\ntwo\\x1b[2J" in line


def test_everything_told_in_the_block_is_written_at_its_end_and_below_the_level_nothing() -> None:
    reading, writing = os.pipe()
    with stderr_logging(process="supervisor", form="json", level="info", fd=writing):
        logging.getLogger("gateway.test").info("one")
        logging.getLogger("gateway.test").debug("two")
        logging.getLogger("gateway.test").error("three")
    os.close(writing)
    with os.fdopen(reading) as lines:
        assert [json.loads(line)["event"] for line in lines] == ["one", "three"]


def test_logging_is_as_it_was_after_the_block() -> None:
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    with stderr_logging(process="supervisor", form="json", level="debug", fd=2):
        pass
    assert (root.handlers, root.level) == before


def test_lost_lines_are_told_in_the_same_form() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with stderr_logging(process="supervisor", form="json", level="info", fd=writing):
        for number in range(30_000):
            logging.getLogger("gateway.test").info("number", extra={"number": number})
        text = b""
        while b"log.dropped" not in text:
            text += os.read(reading, 1 << 20)
    os.close(writing)
    os.close(reading)
    (line,) = [json.loads(line) for line in text.splitlines() if b"log.dropped" in line][:1]
    assert (line["event"], line["process"], line["count"] > 0) == ("log.dropped", "supervisor", True)
