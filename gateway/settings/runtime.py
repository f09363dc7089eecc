"""The runtime part of the settings: what a reload changes while requests are in flight.

Not a station.  Pools, backends and the policies of the request flow.  Names and defaults of timers, limits and headers
are those of the policies that workers get (``gateway.core.routing.snapshot``), so the two cannot drift apart.
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from gateway.core.routing.cors import CorsPolicy
from gateway.core.routing.snapshot import HeaderPolicy, LimitPolicy, PoolView, TimerPolicy
from gateway.settings.comments import Comments
from gateway.settings.lora import LoraAdapter
from gateway.settings.parameters import Parameters
from gateway.settings.reasoning import Reasoning, Side
from gateway.settings.routing import Poison, Routing
from gateway.settings.section import Section
from gateway.settings.types import (
    BackendUrl,
    Bytes,
    Count,
    CountOrNone,
    ModelName,
    Name,
    OptionalFile,
    Origin,
    Seconds,
    SecondsOrOff,
    Switch,
    VariableName,
)

_TIMERS: Final = TimerPolicy()
_LIMITS: Final = LimitPolicy()
_HEADERS: Final = HeaderPolicy()
_POOL: Final = PoolView(name="")
_CORS: Final = CorsPolicy()


class Backend(Section):
    """One vLLM server."""

    name: Name = Field(
        description="Unique in the whole gateway; shown in logs, metrics and the `X-Gateway-Backend` header."
    )
    url: BackendUrl = Field(
        description="`http://host:port`, `https://host:port` or `unix:/path`, without a path: the gateway adds it. Never "
        "a user, a password or a query: urls are shown."
    )
    api_key_env: VariableName = Field(
        "",
        description="Name of the environment variable with this backend's own key (its `--api-key`). Empty: no key is "
        "sent. A name, so that no key stands in the file; what clients send as a key is never passed on.",
    )
    tls_ca: OptionalFile = Field(
        "",
        description="PEM file with the authorities that an https backend is verified against. Empty: the system's. "
        "Relative to the current directory. Verification cannot be switched off.",
    )
    driver: Literal["static"] = Field(
        "static",
        description="Who runs the engine. `static`: somebody else; the gateway watches it and never starts or stops it.",
    )


class ModelAlias(Section):
    """Another name for a model of the pool."""

    name: ModelName = Field(description="What clients ask for; listed at `/v1/models` beside the model itself.")
    model: ModelName = Field(
        description="The name that the engines know; it goes upstream in place of the alias, and answers carry it."
    )


class Pool(Section):
    """Backends that serve the same models."""

    name: Name = Field(description="Unique among the pools; shown in logs and metrics.")
    models: tuple[ModelName, ...] = Field(
        (),
        description="Names that clients use; they are passed on as they are, so the engines must know them "
        "(`--served-model-name`). Empty: whatever the backends report at `/v1/models`.",
    )
    aliases: tuple[ModelAlias, ...] = Field(
        (),
        description="Further names for these models, so that clients need not change when the model does.",
    )
    lora: tuple[LoraAdapter, ...] = Field((), description="Operators load and unload them: [lora.md](lora.md).")
    min_available: CountOrNone = Field(
        1,
        description="With fewer backends serving than this, `status` calls the pool short.",
    )
    routing: Routing = Field(default_factory=Routing, description=Routing.__doc__)
    concurrency: CountOrNone = Field(
        _POOL.concurrency,
        description="Requests at once on each backend; further ones wait in the gateway, where who is next is fair "
        "between keys. 0: no bound, nobody waits. A little above the engine's `--max-num-seqs` keeps it busy; an engine "
        "serves its own queue first come, first served.",
    )
    queue: CountOrNone = Field(
        _POOL.queue,
        description="Requests that may wait for a place on a backend; further ones get 503 with `Retry-After`. Each "
        "keeps its connection and its body: a thousand chats are some tens of MiB.",
    )
    queue_s: Seconds = Field(
        _POOL.queue_s,
        description="The longest that a request waits for a place; then 503. A minute, since few people wait longer and "
        "a client that retries is better told.",
    )
    deadline_s: SecondsOrOff = Field(
        _POOL.deadline_s,
        description="A request that still waits so long after it came gets 504, unless it says otherwise in "
        "`X-Gateway-Deadline`. 0: no deadline but queue_s.",
    )
    hold_s: SecondsOrOff = Field(
        _POOL.hold_s,
        description="While no backend of the pool serves but one is expected back (it starts, stops or drains, or has "
        "just gone down) requests wait so long for it instead of getting 503. 0: off; a restart of a large model takes "
        "minutes, and not every client waits.",
    )
    reasoning: Reasoning = Field(default_factory=Reasoning, description=Reasoning.__doc__)
    backends: tuple[Backend, ...] = Field(min_length=1, description="A list with at least one server.")


class Timers(Section):
    """Every wait of the request flow."""

    connect_s: Seconds = Field(
        _TIMERS.connect_s,
        description="For a backend to accept a connection; past it another backend is tried, since nothing was sent.",
    )
    first_event_s: Seconds = Field(
        _TIMERS.first_event_s,
        description="From the request being sent to the first event of the answer. Long, since vLLM answers 200 at "
        "once and then keeps the request in its queue.",
    )
    stall_s: Seconds = Field(
        _TIMERS.stall_s,
        description="Without a byte for this long an answer ends with an error event, unless the engine is seen to "
        "generate tokens meanwhile.",
    )
    silent_max_s: Seconds = Field(
        _TIMERS.silent_max_s,
        description="The longest silence even while the engine generates (it thinks and the client asked not to see "
        "it). At least stall_s.",
    )
    pulse_fresh_s: Seconds = Field(
        _TIMERS.pulse_fresh_s,
        description="How old a reading of the engine's token counter may be to count as a sign of life. At least twice "
        "probes.scrape_s, so that one missed reading ends nothing.",
    )
    total_s: SecondsOrOff = Field(
        _TIMERS.total_s,
        description="The longest a request may take in all; 0: no bound, since a long answer is no fault.",
    )
    upstream_idle_s: Seconds = Field(
        _TIMERS.upstream_idle_s,
        description="How long an idle connection to a backend is kept. Below the 5 s after which vLLM's server closes "
        "it, so that no request meets a closing connection.",
    )
    client_write_s: Seconds = Field(
        _TIMERS.client_write_s,
        description="How long a client may take no bytes before its connection is closed and its request cancelled.",
    )
    owner_s: Seconds = Field(
        _TIMERS.owner_s,
        description="For the backends to say which of them holds a stored response that this worker does not know. They look "
        "it up in memory, so a busy one is all that can take long.",
    )


class Limits(Section):
    """Every bound of the request flow."""

    body_bytes: Bytes = Field(
        _LIMITS.body_bytes,
        description="The largest request body; larger ones get 413. Images and audio travel inside.",
    )
    body_s: Seconds = Field(
        _LIMITS.body_s,
        description="For a whole body to arrive; later ones get 408. An absolute deadline, so dripping does not help.",
    )
    receiving_bytes: Bytes = Field(
        _LIMITS.receiving_bytes,
        description="Of all bodies that one worker is receiving, the first 64 KiB of each not counted; further ones get 503 "
        "with `Retry-After`: sixteen of the largest bodies, however slowly they come. Bodies that are whole and wait for a "
        "backend are not among them; in_flight and `pools[].queue` bound how many these are. At least body_bytes.",
    )
    in_flight: Count = Field(
        _LIMITS.in_flight,
        description="Requests in flight over all workers; further ones get 429 with `Retry-After`.",
    )
    hold_bytes: Bytes = Field(
        _LIMITS.hold_bytes,
        description="How much of one answer is held back while an event is not yet whole; a larger event ends the stream "
        "with an error. At least event_bytes.",
    )
    event_bytes: Bytes = Field(
        _LIMITS.event_bytes,
        description="How much of one event of a stream is read to measure it. A larger event is relayed like any other "
        "and counted as oversize; with the finish reason in it, the answer is recorded as unfinished.",
    )
    answer_hold_bytes: Bytes = Field(
        _LIMITS.answer_hold_bytes,
        description="How much of an answer that is no stream is held back, so that one that breaks off before can "
        "still end in a clear error. Larger answers go out as they come.",
    )
    answer_tap_bytes: Bytes = Field(
        _LIMITS.answer_tap_bytes,
        description="How much of an answer that is no stream is kept to read its usage. Larger answers are relayed "
        "unmeasured.",
    )
    client_buffer_bytes: Bytes = Field(
        _LIMITS.client_buffer_bytes,
        description="Bytes that wait for a slow client before reading from its backend pauses.",
    )
    owned_responses: Count = Field(
        _LIMITS.owned_responses,
        description="Stored responses of which a worker remembers the backend; about 300 bytes each. The backends are asked for "
        "others.",
    )


class Headers(Section):
    """Which headers of its own the gateway adds to an answer, besides `X-Request-Id`."""

    backend_name: Switch = Field(
        _HEADERS.backend_name,
        description="`X-Gateway-Backend`: which backend answered. Off where clients shall not know.",
    )


class Cors(Section):
    """Which web pages may call the gateway from a browser.  Nobody's while the list is empty."""

    origins: tuple[Origin, ...] = Field(
        (),
        description='Origins as browsers spell them, `"https://chat.example"`, or `"*"` for every page. Preflights are '
        "answered by the gateway. Only pages need this; programs and servers do not.",
    )
    max_age_s: SecondsOrOff = Field(
        _CORS.max_age_s, description="How long a browser may remember the answer to a preflight."
    )


class Probes(Section):
    """How the gateway watches the backends."""

    health_s: Seconds = Field(2.0, description="Between two health probes of a backend.")
    scrape_s: Seconds = Field(
        2.0,
        description="Between two readings of an engine's `/metrics`. Load, and the sign of life of timers.pulse_fresh_s, come from them.",
    )
    timeout_s: Seconds = Field(
        2.0, description="For one probe to be answered. A busy engine answers late, a dead one not at all."
    )
    fall: Count = Field(
        3, description="Failed probes in a row that eject a backend. One lost probe must not empty a pool."
    )
    rise: Count = Field(
        1, description="Good probes in a row that bring it back. One, since an idle engine costs more than a retry."
    )


class Runtime(Section):
    """Everything that a reload can change."""

    pools: tuple[Pool, ...] = Field(
        min_length=1, description="A list with at least one pool; a model belongs to one of them only."
    )
    timers: Timers = Field(default_factory=Timers, description=Timers.__doc__)
    limits: Limits = Field(default_factory=Limits, description=Limits.__doc__)
    headers: Headers = Field(default_factory=Headers, description=Headers.__doc__)
    side: Side = Field(default_factory=Side, description=Side.__doc__)
    parameters: Parameters = Field(default_factory=Parameters, description=Parameters.__doc__)
    cors: Cors = Field(default_factory=Cors, description=Cors.__doc__)
    comments: Comments = Field(default_factory=Comments, description=Comments.__doc__)
    poison: Poison = Field(default_factory=Poison, description=Poison.__doc__)
    probes: Probes = Field(default_factory=Probes, description=Probes.__doc__)
