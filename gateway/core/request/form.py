"""A form with a file (multipart/form-data, RFC 7578): checked and read as far as the gateway needs, sent on as it came.

Station admit.  Two parsers read the same bytes, this one and the engine's, so only what both must read alike is let
through: no text before the first or after the last delimiter, no line ends but CRLF, no transfer encodings, no name
twice, short plain part headers.  The work is bounded by the number of parts; a file's bytes are looked at once.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec import Raw

from gateway.core.request.body import ParsedBody
from gateway.core.stream.summary import RequestShape
from gateway.errors import BadRequest

MAX_PARTS: Final = 64
MAX_PART_HEAD_BYTES: Final = 4096
MAX_TEXT_BYTES: Final = 64 * 1024
"""Of one field that is no file: a prompt, at the longest."""

_MEDIA_TYPE: Final = re.compile(
    r"multipart/form-data\s*;\s*(?:charset=\"?utf-8\"?\s*;\s*)?boundary=(?:\"([^\"]{1,70})\"|([^\s;\"]{1,70}))\s*"
    r"(?:;\s*charset=\"?utf-8\"?\s*)?",
    re.IGNORECASE,
)
_BOUNDARY: Final = re.compile(r"[0-9A-Za-z'()+_,\-./:=?]{1,70}")
_DISPOSITION: Final = re.compile(
    rb'form-data; ?name="([A-Za-z0-9_\-]{1,64}(?:\[\])?)"(?:(; ?filename="[^"\\\r\n]{0,1024}")(?:; ?filename\*=[!#-+\--:<-~]{1,3072})?)?',
    re.IGNORECASE,
)
_HEADER: Final = re.compile(rb"([A-Za-z0-9\-]{1,64}):[ \t]*([^\r\n\x00]*?)[ \t]*")
_PLAIN_ENCODINGS: Final = frozenset({b"7bit", b"8bit", b"binary"})
_TRUE: Final = frozenset({"true", "1", "on", "yes", "y", "t"})
"""How pydantic spells true in a form."""


def boundary_of(content_type: str) -> str:
    """The boundary that a ``Content-Type`` names.  Raises BadRequest where it is no plain form's."""
    found = _MEDIA_TYPE.fullmatch(content_type.strip())
    boundary = (found[1] or found[2]) if found else ""
    if not _BOUNDARY.fullmatch(boundary):
        raise BadRequest("the Content-Type must be multipart/form-data with a boundary", param="Content-Type")
    return boundary


def parse_form(data: bytes, boundary: str) -> ParsedBody:
    """Read a whole form.  Raises BadRequest for one that two parsers could read differently."""
    spans = _texts(data, b"--" + boundary.encode("ascii"))
    texts = {name: _text(data[start:end], name) for name, (start, end) in spans.items()}
    return ParsedBody(
        fields={name: Raw(msgspec.json.encode(text)) for name, text in texts.items()},
        model=texts.get("model", ""),
        shape=RequestShape(stream=texts.get("stream", "").strip().lower() in _TRUE),
        media_type=b'multipart/form-data; boundary="%b"' % boundary.encode("ascii"),
        whole=data,
        model_at=spans.get("model", (0, 0)),
    )


def _texts(data: bytes, dashes: bytes) -> dict[str, tuple[int, int]]:
    """Where the fields that are no files stand, by name; ``dashes`` is the delimiter without the line end before it."""
    if not data.startswith(dashes + b"\r\n"):
        raise BadRequest("the form does not begin with its boundary")
    texts: dict[str, tuple[int, int]] = {}
    names: set[str] = set()
    at = len(dashes)
    for _ in range(MAX_PARTS + 1):
        if data.startswith(b"--", at):
            if data[at + 2 :] not in (b"", b"\r\n"):
                raise BadRequest("the form goes on after its end")
            return texts
        if not data.startswith(b"\r\n", at):
            raise BadRequest("a boundary in the form is not a line of its own")
        name, is_file, start = _part_head(data, at + 2)
        end = data.find(b"\r\n" + dashes, start)
        if end < 0:
            raise BadRequest("the form has no end")
        if name in names and not name.endswith("[]"):
            raise BadRequest(f"the form has the field {name} twice", param=name)
        names.add(name)
        if not is_file:
            texts[name] = start, end
        at = end + 2 + len(dashes)
    raise BadRequest(f"the form has more than {MAX_PARTS} parts")


def _part_head(data: bytes, start: int) -> tuple[str, bool, int]:
    """Name of the part whose head begins at ``start``, whether it is a file, and where its content begins."""
    end = data.find(b"\r\n\r\n", start, start + MAX_PART_HEAD_BYTES)
    if end < 0:
        raise BadRequest(f"a part of the form has no head, or one of more than {MAX_PART_HEAD_BYTES} bytes")
    found: dict[bytes, bytes] = {}
    for line in data[start:end].split(b"\r\n"):
        header = _HEADER.fullmatch(line)
        if header is None or header[1].lower() in found:
            raise BadRequest("a part of the form has a head that cannot be read in one way only")
        found[header[1].lower()] = header[2]
    disposition = _DISPOSITION.fullmatch(found.get(b"content-disposition", b""))
    if disposition is None:
        raise BadRequest("a part of the form has no plain Content-Disposition with a name")
    if found.get(b"content-transfer-encoding", b"binary").lower() not in _PLAIN_ENCODINGS:
        raise BadRequest("a part of the form is encoded for transfer")
    return disposition[1].decode("ascii"), disposition[2] is not None, end + 4


def _text(content: bytes, name: str) -> str:
    if len(content) > MAX_TEXT_BYTES:
        raise BadRequest(f"{name} in the form is longer than {MAX_TEXT_BYTES} bytes", param=name)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise BadRequest(f"{name} in the form is not UTF-8", param=name) from None
