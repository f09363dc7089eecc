"""Which changed settings only a restart applies: the install part of a configuration against what runs.

Used by reload and check.  Pure; must not apply anything.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

import msgspec

from gateway.app.spec import InstallSpec, install_spec
from gateway.settings import Settings

SETTING_OF: Final = MappingProxyType(
    {
        "runtime_dir": "runtime_dir",
        "store_path": "store.path",
        "workers": "workers",
        "clients": "clients.listen",
        "operators": "operators.listen",
        "operator_names": "operators.names",
        "keys_path": "auth.keys_file",
        "tls_certificate": "clients.tls.certificate",
        "tls_key": "clients.tls.key",
        "log_format": "log.format",
        "log_level": "log.level",
        "drain_s": "clients.drain_s",
        "client_head_s": "clients.head_s",
        "client_idle_s": "clients.idle_s",
        "connections": "clients.connections",
        "store_keep_s": "store.keep_days",
        "store_keep_bytes": "store.keep_bytes",
    }
)
"""Field of the installation -> the setting that it comes from."""


def restart_needed(running: InstallSpec, settings: Settings) -> tuple[str, ...]:
    """One sentence for each setting that differs from the installation that runs."""
    wanted = msgspec.structs.asdict(install_spec(settings))
    now = msgspec.structs.asdict(running)
    return tuple(
        _sentence(field, setting, now=now[field], wanted=wanted[field])
        for field, setting in SETTING_OF.items()
        if now[field] != wanted[field]
    )


def _sentence(field: str, setting: str, *, now: object, wanted: object) -> str:
    if field == "keys_path" and "" in {now, wanted}:  # without a file none is asked for
        return f"auth.clients: {'keys' if now else 'none'} → {'keys' if wanted else 'none'}"
    return f"{setting}: {_told(field, now)} → {_told(field, wanted)}"


def _told(field: str, value: object) -> str:
    """``value`` in the unit of its setting."""
    match value:
        case tuple():
            return ", ".join(map(str, value)) or "none"
        case "":
            return "none"
        case float() if field == "store_keep_s":
            return f"{value / 86400.0:.12g}"
        case float():
            return f"{value:.12g}"
        case _:
            return str(value)
