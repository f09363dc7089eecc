"""A request's fingerprint: 64 bits that tell whether two requests ask an engine for the same work.

Station admit.  Of the body as it goes upstream, top-level fields in order of their names, without what says only how
the answer is sent.  Values count as the client wrote them: a retry writes them the same.  Cannot be turned back into
text; nothing else of a request may be kept.  Pure.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from gateway.core.request.body import ParsedBody

LEFT_OUT: Final = frozenset({"stream", "stream_options", "stream_interval", "request_id"})


def fingerprint(body: ParsedBody) -> str:
    """Sixteen hexadecimal digits."""
    digest = blake2b(digest_size=8)
    for name in sorted(body.fields.keys() - LEFT_OUT):
        value = memoryview(body.fields[name])
        digest.update(b"%b\0%d\0" % (name.encode(), len(value)))
        digest.update(value)
    return digest.hexdigest()
