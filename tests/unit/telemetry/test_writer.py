"""Lines to a descriptor: in order, never blocking the caller, every lost line counted and told."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from gateway.telemetry.writer import LogWriter


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read_end, write_end = os.pipe()
    yield read_end, write_end
    os.close(read_end)
    os.close(write_end)


def writer_to(fd: int, **options: int) -> LogWriter:
    return LogWriter(fd, told_drops=lambda count: b"lost %d" % count, **options)


def test_lines_are_written_in_order(pipe: tuple[int, int]) -> None:
    read_end, write_end = pipe
    writer = writer_to(write_end)
    for number in range(1000):
        writer.write(b"line %d" % number)
    writer.close()
    assert os.read(read_end, 65536).splitlines() == [b"line %d" % number for number in range(1000)]
    assert writer.dropped == 0


def test_a_pipe_that_nobody_reads_blocks_nobody_and_the_loss_is_told_once_it_flows(pipe: tuple[int, int]) -> None:
    read_end, write_end = pipe
    writer = writer_to(write_end, queue_lines=10)
    for _ in range(1000):
        writer.write(b"x" * 1024)
    assert writer.dropped > 0
    seen = b""
    while seen.count(b"\n") < 1000 - writer.dropped:
        seen += os.read(read_end, 65536)
    writer.write(b"end")
    writer.close()
    seen += os.read(read_end, 65536)
    lines = seen.splitlines()
    told = [int(line.removeprefix(b"lost ")) for line in lines if line.startswith(b"lost ")]
    assert sum(told) == writer.dropped
    assert lines.count(b"x" * 1024) == 1000 - writer.dropped
    assert b"end" in lines


def test_closing_gives_up_on_a_pipe_that_stays_blocked(pipe: tuple[int, int]) -> None:
    _, write_end = pipe
    writer = writer_to(write_end, queue_lines=10)
    for _ in range(1000):
        writer.write(b"x" * 1024)
    writer.close(timeout_s=0.05)
    assert writer.dropped > 0
    os.set_blocking(pipe[0], False)
    with contextlib.suppress(BlockingIOError):
        while os.read(pipe[0], 1 << 20):  # a thread that is let go must find nothing more to do
            pass
    writer._thread.join(timeout=10)
    assert not writer._thread.is_alive()


def test_lines_of_two_processes_on_one_pipe_are_never_torn(pipe: tuple[int, int]) -> None:
    read_end, write_end = pipe
    writers = [writer_to(write_end, queue_lines=1000) for _ in range(2)]
    for _ in range(1000):
        for writer, letter in zip(writers, (b"a", b"b"), strict=True):
            writer.write(letter * 800)
    seen = b""
    while seen.count(b"\n") < 2000:
        seen += os.read(read_end, 3000)  # a slow reader: the pipe is always full
    for writer in writers:
        writer.close()
    assert set(seen.splitlines()) == {b"a" * 800, b"b" * 800}


def test_a_line_longer_than_a_pipe_takes_whole_is_written_all_the_same(pipe: tuple[int, int]) -> None:
    read_end, write_end = pipe
    writer = writer_to(write_end)
    for line in (b"before", b"x" * 10_000, b"after"):
        writer.write(line)
    writer.close()
    assert os.read(read_end, 65536).splitlines() == [b"before", b"x" * 10_000, b"after"]


def test_a_non_blocking_descriptor_is_waited_for(pipe: tuple[int, int]) -> None:
    read_end, write_end = pipe
    os.set_blocking(write_end, False)
    writer = writer_to(write_end)
    total = 0
    for _ in range(200):
        writer.write(b"y" * 1023)
    while total < 200 * 1024:
        total += len(os.read(read_end, 65536))
    writer.close()
    assert (total, writer.dropped) == (200 * 1024, 0)


def test_a_broken_pipe_loses_lines_counted_and_nothing_else() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    writer = writer_to(write_end)
    writer.write(b"one")
    writer.close()
    os.close(write_end)
    assert writer.dropped >= 1
