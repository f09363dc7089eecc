"""What the parsers of a server make of raw tokens: reasoning, content, a tool call, and stop strings held back.

Pure.  Stands between the engine's tokens and the bytes of an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.simulator.request import Channel, Token

_ARGUMENTS: Final = '"arguments": '
END_TEXT: Final = "<|im_end|>"  # how the end token is named where its text is asked for (logprobs)


class ToolText:
    """Takes a call's raw JSON apart as it comes: first the name, then the arguments; owner: one choice."""

    __slots__ = ("_depth", "_seen", "arguments", "call_id", "held", "name")

    def __init__(self, call_id: str, name: str) -> None:
        self.call_id = call_id
        self.name = name
        self.arguments: str | None = None  # None until the name is complete
        self.held = ""  # arguments that came together with the name: the name goes out alone
        self._seen = ""
        self._depth = 0

    def feed(self, text: str) -> tuple[bool, str]:
        """Return (whether the name is complete with this text, what goes out of the arguments)."""
        if self.arguments is not None:
            held, self.held = self.held, ""
            return False, held + self._within(text)
        self._seen += text
        _, found, rest = self._seen.partition(_ARGUMENTS)
        if not found:
            return False, ""
        self.arguments = ""
        self.held = self._within(rest)
        return True, ""

    def _within(self, text: str) -> str:
        """Return the part of ``text`` that belongs to the arguments' object: not the brace that closes the call."""
        end = len(text)
        for at, character in enumerate(text):
            self._depth += (character == "{") - (character == "}")
            if self._depth < 0:
                end = at
                break
        self.arguments = (self.arguments or "") + text[:end]
        return text[:end]


class StopWatch:
    """Finds stop strings in growing text, and holds back what may be the beginning of one; owner: one choice."""

    __slots__ = ("_held", "_keep", "_stops")

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._keep = max((len(stop) for stop in stops), default=1) - 1
        self._held = ""

    def feed(self, text: str, *, is_last: bool) -> tuple[str, str | None]:
        """Return (text that may go out, the stop string that was found); the text ends before that string."""
        text = self._held + text
        hits = [(text.index(stop), stop) for stop in self._stops if stop and stop in text]
        if hits:
            at, stop = min(hits)
            self._held = ""
            return text[:at], stop
        cut = len(text) if is_last else max(0, len(text) - self._keep)
        self._held = text[cut:]
        return text[:cut], None


def split(tokens: Sequence[Token], *, parses_reasoning: bool) -> tuple[str, str, str]:
    """Return (reasoning, content, raw tool text) of some tokens; without a reasoning parser all thought is content."""
    reasoning: list[str] = []
    content: list[str] = []
    tool: list[str] = []
    for token in tokens:
        match token.channel:
            case Channel.REASONING:
                (reasoning if parses_reasoning else content).append(token.text)
            case Channel.CONTENT:
                content.append(token.text)
            case Channel.TOOL:
                tool.append(token.text)
            case Channel.MARKER:
                pass  # special tokens have no text
    return "".join(reasoning), "".join(content), "".join(tool)


def spoken(token: Token) -> str:
    """Return a token's name where single tokens are listed."""
    return token.text or (END_TEXT if token.channel is Channel.MARKER else "")
