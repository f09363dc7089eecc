"""What the settings need from the machine: variables that hold keys, files of keys and certificates that can be read.

Not a station.  Asked at `serve`, `check` and reload.  It opens files for reading and nothing else, and never shows the
value of a variable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ssl import PROTOCOL_TLS_CLIENT, PROTOCOL_TLS_SERVER, SSLContext, SSLError

from gateway.errors import ConfigError
from gateway.settings.environment import Sections
from gateway.settings.install import Auth, ClientTls
from gateway.settings.keys import read_keys
from gateway.settings.relations import Broken
from gateway.settings.runtime import Backend


def missing(sections: Sections, environ: Mapping[str, str]) -> Iterator[Broken]:
    """Everything that ``sections`` refer to and that is not there or cannot be used."""
    if fault := _pair_fault(sections.clients.tls):
        yield Broken(("clients", "tls"), fault)
    yield from _keys_faults(sections.auth)
    for at, pool in enumerate(sections.pools):
        for index, backend in enumerate(pool.backends):
            path = ("pools", at, "backends", index)
            if fault := _key_fault(backend, environ):
                yield Broken((*path, "api_key_env"), fault)
            if fault := _certificate_fault(backend):
                yield Broken((*path, "tls_ca"), fault)


def _key_fault(backend: Backend, environ: Mapping[str, str]) -> str:
    name = backend.api_key_env
    if not name:
        return ""
    value = environ.get(name, "")
    if not value:
        return f"the environment variable {name} is {'empty' if name in environ else 'not set'}"
    if not (value.isascii() and value.isprintable() and value == value.strip()):
        return f"the value of {name} cannot stand in a header (a line break or blank at its end?)"
    return ""


def _pair_fault(tls: ClientTls) -> str:
    if not (tls.certificate and tls.key):
        return ""
    for file in (tls.certificate, tls.key):
        try:
            with open(file, "rb"):  # noqa: PTH123 - a path that may be anything; only whether it opens counts
                pass
        except OSError as error:
            return f"cannot read {file}: {(error.strerror or 'unknown reason').lower()}"
    try:
        SSLContext(PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key, password="")
    except SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            return f"{tls.key} is not the key of {tls.certificate}"
        return (
            f"{tls.certificate} and {tls.key} hold no certificate and key in PEM form (an encrypted key cannot be used)"
        )
    return ""


def _certificate_fault(backend: Backend) -> str:
    if not backend.tls_ca:
        return ""
    try:
        SSLContext(PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=backend.tls_ca)
    except SSLError:
        return f"{backend.tls_ca} holds no certificate in PEM form"
    except OSError as error:
        return f"cannot read {backend.tls_ca}: {(error.strerror or 'unknown reason').lower()}"
    return ""


def _keys_faults(auth: Auth) -> Iterator[Broken]:
    """A file that is not there yet is no fault: the first key makes it."""
    if auth.clients != "keys" or not auth.keys_file.exists():
        return
    try:
        read_keys(auth.keys_file)
    except ConfigError as error:
        for line in error.message.splitlines():
            yield Broken(("auth", "keys_file"), line)
