"""A backend's own key as it is sent: one rule for probes and for requests, so that the two cannot disagree.

Stations forward and, in control, the probes.  The key comes from the environment variable that the configuration
names; files and secret stores often leave a newline at its end.  Must not read the environment itself.
"""

from __future__ import annotations


def bearer(value: str) -> str:
    """The value of the header ``Authorization`` for the key ``value``; "" where it is empty or cannot be a header.

    Blanks around the key are no part of it.  What is not printable ASCII would break the request's head or be read
    differently by both sides, so no key is sent then and the backend says 401.
    """
    key = value.strip()
    return f"Bearer {key}" if key and key.isascii() and key.isprintable() else ""


def bearer_line(value: str) -> bytes:
    """The same as a whole header line with its end, or nothing."""
    header = bearer(value)
    return b"Authorization: %b\r\n" % header.encode("ascii") if header else b""
