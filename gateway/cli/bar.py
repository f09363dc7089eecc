"""A request's life as a bar of text: which phase took how much of it.

Pure.  The phases lie between the instants that came; an instant that never came has no phase of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from gateway.core.link.messages import RequestRecord
from gateway.core.stream.summary import Outcome


class Phase(StrEnum):
    """What a stretch of time was spent on."""

    SENDING = "receiving and sending on"
    WAITING = "waiting for the first token"
    THINKING = "thinking"
    ANSWERING = "answering"
    ENDING = "ending"
    WHOLE = "waiting for the answer"


@dataclass(frozen=True, slots=True)
class Stretch:
    """From ``start_s`` to ``end_s`` after accepted, spent on ``phase``."""

    phase: Phase
    start_s: float
    end_s: float


def stretches(record: RequestRecord) -> list[Stretch]:
    """The phases of a request in order, without those that took no time; together they are its whole life."""
    last = Phase.ENDING if record.last_token_s is not None or record.sent_s is None else _unfinished(record)
    ends = (
        (record.sent_s, Phase.SENDING),
        (record.ttft_s, Phase.WAITING),
        (record.ttfv_s, Phase.THINKING),
        (record.last_token_s, Phase.THINKING if record.ttfv_s is None and _is_hidden(record) else Phase.ANSWERING),
        (record.total_s, last),
    )
    found, start_s = [], 0.0
    for end_s, phase in ends:
        if end_s is not None and end_s > start_s:
            found.append(Stretch(phase, start_s, end_s))
            start_s = end_s
    return found


def _unfinished(record: RequestRecord) -> Phase:
    """The phase in which a request ended that was sent but has no last token."""
    if not record.stream:
        return Phase.WHOLE if record.outcome is Outcome.OK or record.status else Phase.ENDING
    return Phase.WAITING if record.ttft_s is None else Phase.ENDING


def _is_hidden(record: RequestRecord) -> bool:
    """Whether every token was reasoning: nothing that a reader would call the answer came."""
    return record.summary is not None and not record.summary.content_tokens


def shares(parts: Sequence[float], width: int) -> list[int]:
    """``width`` cells dealt out in proportion to ``parts``; each part gets at least one, the sum is kept.

    Needs at least as many cells as parts, which all are above 0.
    """
    whole = sum(parts)
    dealt = [max(1, int(part / whole * width)) for part in parts]
    while sum(dealt) > width:
        dealt[dealt.index(max(dealt))] -= 1
    by_loss = sorted(range(len(parts)), key=lambda at: dealt[at] - parts[at] / whole * width)
    for place in range(width - sum(dealt)):
        dealt[by_loss[place % len(parts)]] += 1
    return dealt
