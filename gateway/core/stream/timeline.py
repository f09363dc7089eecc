"""Instants, channel times and text lengths of one stream, kept while it runs.

Inside the tap.  Readers report what an event meant; the timeline keeps sums and edges, never a list: its size does
not grow with the stream.  A channel's time is the sum of the gaps that end in one of its chunks; a gap runs from the
token-bearing chunk before it, the first one from the start of the decode window.  Must not know of tokens: lengths
are UTF-8 bytes, counts come later.
"""

from __future__ import annotations

from gateway.core.stream.gaps import GapHistogram


class Timeline:
    """When things came, and how much text; owner: one tap.  Instants must not go back."""

    __slots__ = (
        "chunks",
        "content_bytes",
        "content_s",
        "early_chunks",
        "events",
        "finish",
        "first_event",
        "first_is_reasoning",
        "first_token",
        "first_visible",
        "gaps",
        "last_event",
        "last_token",
        "reasoning_bytes",
        "reasoning_s",
        "start",
        "tool_bytes",
        "visible_gap_s",
    )

    def __init__(self) -> None:
        self.events = 0
        self.first_event: float | None = None
        self.last_event: float | None = None
        self.start: float | None = None  # first event of a choice
        self.finish: float | None = None  # latest event with a reason to finish
        self.first_token: float | None = None
        self.first_visible: float | None = None
        self.last_token: float | None = None
        self.first_is_reasoning = False
        self.chunks = 0
        self.early_chunks = 0  # that came at the very moment of the first one, beside it
        self.reasoning_bytes = 0
        self.content_bytes = 0
        self.tool_bytes = 0
        self.reasoning_s = 0.0
        self.content_s = 0.0
        self.visible_gap_s = 0.0  # the gap that ended in the first visible chunk
        self.gaps = GapHistogram()

    def event(self, now: float) -> None:
        """Note that an event of any kind came."""
        self.events += 1
        if self.last_event is None:
            self.first_event = now
        self.last_event = now

    def begin(self, now: float) -> None:
        """Note that a choice made itself known."""
        if self.start is None:
            self.start = now

    def steady(self, now: float, size: int) -> None:
        """Note an event of ``size`` bytes of content, or less than 0 of reasoning, in a channel that has begun.

        `event` and `chunk` in one: most events of a stream are such.
        """
        self.events += 1
        self.last_event = now
        last = self.last_token
        gap_s = 0.0 if last is None else now - last
        self.gaps.add(gap_s)
        if gap_s <= 0.0 and now == self.first_token:
            self.early_chunks += 1
        self.last_token = now
        self.chunks += 1
        if size > 0:
            self.content_bytes += size
            self.content_s += gap_s
        else:
            self.reasoning_bytes -= size
            self.reasoning_s += gap_s

    def chunk(self, now: float, *, reasoning: int = 0, content: int = 0, tool: int = 0) -> None:
        """Note a token-bearing chunk of so many bytes in each channel; a gap is shared out by length."""
        last = self.last_token
        if last is not None:
            gap_s = now - last
            self.gaps.add(gap_s)
            if gap_s <= 0.0 and now == self.first_token:
                self.early_chunks += 1
        else:
            gap_s = 0.0 if self.start is None else now - self.start
            self.first_token = now
            self.first_is_reasoning = reasoning > 0
        self.last_token = now
        self.chunks += 1
        size = reasoning + content + tool
        if content:
            share_s = gap_s if content == size else gap_s * (content / size)
            if self.first_visible is None:
                self.first_visible = now
                self.visible_gap_s = share_s
            self.content_bytes += content
            self.content_s += share_s
        if reasoning:
            self.reasoning_bytes += reasoning
            self.reasoning_s += gap_s if reasoning == size else gap_s * (reasoning / size)
        if tool:
            self.tool_bytes += tool
