"""The certificate that clients see, read anew when its files change: a renewal needs no restart and cuts nothing.

Part of the worker.  Connections that are open keep what they began with.  Files that do not fit each other are told
once and looked at again when they change: a renewal writes two files, one after the other.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

log = logging.getLogger("gateway.certificate")

Stamp = tuple[tuple[int, int, int], ...]


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    """What to accept TLS with: version 1.2 and newer, HTTP/1.1.

    Raises OSError (a file cannot be read) or ssl.SSLError (no PEM, or key and certificate are no pair).
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_RENEGOTIATION
    _load(context, certificate, key)
    return context


def _load(context: ssl.SSLContext, certificate: str, key: str) -> None:
    # Without a password callback OpenSSL would ask at the terminal for that of an encrypted key.
    context.load_cert_chain(certificate, key, password="")


class ServerCertificate:
    """Owner of the context that every connection is accepted with."""

    def __init__(self, certificate: str, key: str) -> None:
        """Raises as :func:`server_context` does."""
        self._files = (certificate, key)
        self._stamp = self._look()
        self.context = server_context(certificate, key)

    def renew(self) -> None:
        """Read the files again if they have changed; what cannot be used is told and leaves the old pair in force."""
        stamp = self._look()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            server_context(*self._files)  # first beside it: half a load would leave a key without its certificate
            _load(self.context, *self._files)
        except (OSError, ssl.SSLError) as error:
            log.warning("certificate.refused", extra={"path": self._files[0], "reason": _reason(error)})
        else:
            log.info("certificate.renewed", extra={"path": self._files[0]})

    def _look(self) -> Stamp:
        try:
            found = [Path(file).stat() for file in self._files]
        except OSError:
            return ()
        return tuple((it.st_ino, it.st_mtime_ns, it.st_size) for it in found)


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "no certificate and key in PEM form").lower().replace("_", " ")
    return str(getattr(error, "strerror", None) or error).lower()
