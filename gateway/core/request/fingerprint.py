"""A request's fingerprint: 64 bits that tell whether two requests ask an engine for the same work.

Station admit.  Of the body as it goes upstream, top-level fields in order of their names, without what says only how
the answer is sent.  Values count as the client wrote them: a retry writes them the same.  Of a very long value its
length and samples count, so that no body can keep the process busy.  Cannot be turned back into text; nothing else of
a request may be kept.  Pure.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from gateway.core.request.body import ParsedBody

LEFT_OUT: Final = frozenset({"stream", "stream_options", "stream_interval", "request_id"})

MAX_HASHED_BYTES: Final = 64 * 1024
"""Of one value; a longer one is sampled."""

SAMPLES: Final = 16
_SAMPLE_BYTES: Final = MAX_HASHED_BYTES // SAMPLES


def fingerprint(body: ParsedBody) -> str:
    """Sixteen hexadecimal digits; "" where there is no body that could be told from another.

    Of a form, whose boundary is another each time, the inner half counts beside its fields.
    """
    if not body.fields and not body.whole:
        return ""
    digest = blake2b(digest_size=8)
    for name in sorted(body.fields.keys() - LEFT_OUT):
        value = memoryview(body.fields[name])
        digest.update(b"%b\0%d\0" % (name.encode(), len(value)))
        _take(digest, value)
    if body.whole:
        size_bytes = len(body.whole)
        digest.update(b"%d" % size_bytes)
        _take(digest, memoryview(body.whole)[size_bytes // 4 : size_bytes - size_bytes // 4])
    return digest.hexdigest()


def _take(digest: blake2b, value: memoryview) -> None:
    if len(value) <= MAX_HASHED_BYTES:
        digest.update(value)
        return
    for at in range(SAMPLES):  # evenly, the first and the last bytes among them
        start = (len(value) - _SAMPLE_BYTES) * at // (SAMPLES - 1)
        digest.update(value[start : start + _SAMPLE_BYTES])
