"""What the supervisor is asked to run.

Made by the command that serves; plain values, so that the supervisor needs no settings.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.core.supervision.state import SupervisionPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The children and where they listen.

    ``clients`` and ``operators`` are listen addresses: "127.0.0.1:8080", "[::1]:8080" or "unix:/path" (port 0 takes
    a free one).  ``worker`` and ``control`` are command lines; the supervisor adds ``--slot N`` (workers) and
    ``--fds JSON``, ``{"slots": [[fd, ...] per slot], "operators": [fd, ...], "tether": fd}``.
    """

    workers: int
    clients: tuple[str, ...]
    operators: tuple[str, ...]
    worker: tuple[str, ...]
    control: tuple[str, ...]
    policy: SupervisionPolicy = field(default_factory=SupervisionPolicy)
    log_format: str = "json"
    log_level: str = "info"
