"""Whose fault a settled request was, where its worker could not say.

Used by the control state.  Pure.
"""

from __future__ import annotations

from gateway.core.link.messages import RequestRecord
from gateway.core.stream.summary import Ending, Flag, Outcome


def failed_within_its_answer(record: RequestRecord) -> bool:
    """Whether HTTP was fine but the answer was not: an error event, an abort, no end marker.

    Workers report other failures themselves.  An error that blames the request (code 4xx) does not count, and neither
    does what a tap of ours that broke down did not live to see.
    """
    if record.outcome is not Outcome.UPSTREAM_ERROR or record.ending is not Ending.COMPLETE or not record.backend:
        return False
    summary = record.summary
    if summary is None:
        return True
    blames_request = summary.error is not None and (summary.error.code or "").startswith("4")
    return not blames_request and Flag.TAP_DISABLED not in summary.flags
