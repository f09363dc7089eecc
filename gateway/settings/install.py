"""The install part of the settings: what is fixed while the gateway runs.

Not a station.  Listeners, processes, files.  A change takes a restart; a reload names such changes and leaves them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from gateway.settings.section import Section
from gateway.settings.types import Bytes, Count, Days, FilePath, HostName, Listen, OptionalFile, Seconds, Workers

_FORMS: Final = '`"host:port"`, `"[v6]:port"` or `"unix:/path"`, the host an IP address of this machine'


class ClientTls(Section):
    """TLS on the clients' TCP addresses; Unix sockets stay plain.  Off while both are empty."""

    certificate: OptionalFile = Field(
        "",
        description="PEM file with the certificate and its chain. Read again when it changes, so a renewal takes no "
        "restart; one that cannot be used is told in the log and the old one stays. Relative to the current directory.",
    )
    key: OptionalFile = Field(
        "", description="PEM file with its private key, not encrypted. Relative to the current directory."
    )


class Clients(Section):
    """Where clients connect, and how long the gateway waits for them."""

    listen: tuple[Listen, ...] = Field(
        ("127.0.0.1:8080",),
        min_length=1,
        description=f"Addresses for clients: {_FORMS}. The loopback by default, since no keys are asked for.",
    )
    tls: ClientTls = Field(default_factory=ClientTls, description=ClientTls.__doc__)
    head_s: Seconds = Field(
        30.0,
        description="Time for a request's head to arrive once it has begun. Ends connections that drip on purpose.",
    )
    idle_s: Seconds = Field(
        75.0,
        description="How long an idle connection is kept. Longer than the usual 60 s of load balancers, so that they "
        "close first and no request meets a closing connection.",
    )
    connections: Count = Field(
        16_384,
        description="Open client connections per worker; one more is told 429 and closed. Each costs a descriptor.",
    )
    drain_s: Seconds = Field(
        30.0,
        description="How long open answers may go on after a stop was asked for; then they end with an error event. "
        "Keep it below the patience of what stops the gateway (systemd: TimeoutStopSec).",
    )


class Operators(Section):
    """Where operators connect: admin API and `/metrics`. Never a port of the clients."""

    listen: tuple[Listen, ...] = Field(
        ("127.0.0.1:8081",),
        min_length=1,
        description=f"Addresses for operators: {_FORMS}. `/metrics` is open here; everything else asks for the "
        "token in `<runtime_dir>/admin.token`. The loopback by default, since the token travels in clear text.",
    )
    names: tuple[HostName, ...] = Field(
        (),
        description="Host names, without a port, by which these addresses are asked besides their own and `localhost`: "
        "what Prometheus or a browser has in the url. Any other name in `Host` or `Origin` gets 403, since a page of "
        "another site that has its name resolved to this machine must not be answered.",
    )


class Auth(Section):
    """Who may send requests."""

    clients: Literal["none", "keys"] = Field(
        "none",
        description="How clients prove who they are. `none`: not at all, allowed only where every client address is on "
        "the loopback or a Unix socket, whose file modes then decide. `keys`: by a key of auth.keys_file.",
    )
    keys_file: FilePath = Field(
        Path("var/keys.json"),
        description="The clients' keys with `keys`: digests, scopes, limits; YAML or JSON, mode 0600. `pacekeeper keys` "
        "and the admin API write it; a change by hand is seen within a second. With a fault in it the old keys stay.",
    )


class Store(Section):
    """The history of settled requests: numbers only, never text."""

    path: FilePath = Field(
        Path("var/pacekeeper.db"),
        description="The SQLite file. Relative to the current directory; its directory is made if it is missing.",
    )
    keep_days: Days = Field(30.0, description="Rows older than this are removed. A month covers a monthly report.")
    keep_bytes: Bytes = Field(
        1024**3,
        description="The oldest rows are removed when the file grows beyond this. A row takes up to 2 kB, so 1 GiB holds more than 500,000 requests.",
    )


class Log(Section):
    """What is written to standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        "info",
        description="The least severe event that is written. `info` has one line per request and one per decision.",
    )
    format: Literal["json", "console"] = Field(
        "json",
        description="`json`: one object a line, for collectors. `console`: for people at a terminal.",
    )


class Install(Section):
    """Everything that takes a restart to change."""

    clients: Clients = Field(default_factory=Clients, description=Clients.__doc__)
    operators: Operators = Field(default_factory=Operators, description=Operators.__doc__)
    auth: Auth = Field(default_factory=Auth, description=Auth.__doc__)
    workers: Workers = Field(
        1,
        description="Processes that relay requests, or `auto`: one for each processor that the gateway may use. One "
        "relays thousands of streams, and limits are exact with one only.",
    )
    runtime_dir: FilePath = Field(
        Path("var/run"),
        description="Directory (mode 0700) for the socket between the processes and the admin token. Relative to the "
        "current directory. One per running gateway.",
    )
    store: Store = Field(default_factory=Store, description=Store.__doc__)
    log: Log = Field(default_factory=Log, description=Log.__doc__)
