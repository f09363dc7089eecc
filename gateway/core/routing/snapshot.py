"""The fleet as a worker knows it: an immutable, versioned snapshot, and the policy that comes with it.

Made by control, sent over the link, read by the admit, route and forward stations.  A newer ``generation`` replaces
an older one whole.  Holds names of secrets (environment variables), never secrets.
"""

from __future__ import annotations

from msgspec import Struct

from gateway.core.routing.backend import ALWAYS, BackendState
from gateway.core.routing.cors import CorsPolicy
from gateway.core.routing.parameters import ParameterPolicy
from gateway.core.routing.policy import PoisonPolicy, RoutingPolicy
from gateway.core.stream.delivery.mode import ReasoningPolicy


class TimerPolicy(Struct, frozen=True, kw_only=True):
    """Every wait of the request flow, in seconds; 0 switches ``total_s`` off."""

    connect_s: float = 2.0
    first_event_s: float = 600.0
    stall_s: float = 120.0
    silent_max_s: float = 600.0
    pulse_fresh_s: float = 6.0
    total_s: float = 0.0
    upstream_idle_s: float = 3.0
    client_write_s: float = 60.0
    owner_s: float = 5.0


class LimitPolicy(Struct, frozen=True, kw_only=True):
    """Every bound of the request flow; counts over all workers, ``receiving_bytes`` of one.

    ``hold_bytes`` bounds what is relayed of one event, ``event_bytes`` what is read of it to measure it.
    """

    body_bytes: int = 64 * 1024 * 1024
    body_s: float = 300.0
    receiving_bytes: int = 1024 * 1024 * 1024
    in_flight: int = 8192
    hold_bytes: int = 16 * 1024 * 1024
    event_bytes: int = 16 * 1024 * 1024
    answer_hold_bytes: int = 256 * 1024
    answer_tap_bytes: int = 8 * 1024 * 1024
    client_buffer_bytes: int = 256 * 1024
    owned_responses: int = 16384


class HeaderPolicy(Struct, frozen=True, kw_only=True):
    """Which headers of our own an answer carries besides ``X-Request-Id``.

    ``profile_name`` has no setting yet: so far no backend has a profile.
    """

    backend_name: bool = True
    profile_name: bool = True


class SidePolicy(Struct, frozen=True, kw_only=True):
    """Reasoning on streams of its own.

    ``keep_s`` after its end one can still be read, ``buffer_bytes`` of it are kept, one worker has ``streams`` of them.
    """

    keep_s: float = 60.0
    buffer_bytes: int = 1024 * 1024
    streams: int = 1024


class CommentPolicy(Struct, frozen=True, kw_only=True):
    """Comments to clients while a stream is silent, in seconds; 0 switches one off.

    ``first_s``: without a first event for so long the head goes out with a comment, which gives up a real status;
    ``every_s``: between two events.  ``untouched``: also in streams that are relayed as the engine sends them.
    """

    first_s: float = 15.0
    every_s: float = 15.0
    untouched: bool = False


class WorkerPolicy(Struct, frozen=True, kw_only=True):
    """The runtime settings that workers need.

    ``away_s``: when a client should come back that found no backend serving: the time between two health probes.
    """

    timers: TimerPolicy = TimerPolicy()
    limits: LimitPolicy = LimitPolicy()
    headers: HeaderPolicy = HeaderPolicy()
    side: SidePolicy = SidePolicy()
    parameters: ParameterPolicy = ParameterPolicy()
    comments: CommentPolicy = CommentPolicy()
    cors: CorsPolicy = CorsPolicy()
    poison: PoisonPolicy = PoisonPolicy()
    away_s: float = 2.0


class BackendView(Struct, frozen=True, kw_only=True):
    """One backend: where it is, what it serves, what state control believes it to be in.

    ``url`` is ``http://host:port``, ``https://host:port`` or ``unix:/path``; ``api_key_env`` names the environment
    variable that holds the backend's own key; ``tls_ca`` is a PEM file that https must verify against ("" = the
    system's); ``models`` are the ids that the backend itself reports; ``stopping`` says that we ourselves are ending
    it, which widens what may be retried.  ``serving_since``: monotonic.
    """

    name: str
    pool: str
    url: str
    state: BackendState
    api_key_env: str = ""
    tls_ca: str = ""
    models: tuple[str, ...] = ()
    profile: str = ""
    stopping: bool = False
    serving_since: float = ALWAYS


class Alias(Struct, frozen=True):
    """Another name that clients use for ``model``, which is the name that the engines know."""

    name: str
    model: str


class PoolView(Struct, frozen=True, kw_only=True):
    """Backends that serve the same models.  ``models`` empty: whatever its backends report.

    ``adapters``: LoRA adapters that are wanted; each is served by those backends that report it.
    ``reasoning`` holds for all of them but those with one of their own in ``model_reasoning``.
    How requests wait for it: at most ``concurrency`` at once on each backend (0: no bound, nobody waits), ``queue``
    places, ``queue_s`` at most and not beyond ``deadline_s`` after they came (0: no deadline); ``hold_s``: how long for
    a backend that is expected back (0: not at all).
    """

    name: str
    models: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    concurrency: int = 0
    queue: int = 1024
    queue_s: float = 60.0
    deadline_s: float = 0.0
    hold_s: float = 0.0
    aliases: tuple[Alias, ...] = ()
    routing: RoutingPolicy = RoutingPolicy()
    reasoning: ReasoningPolicy = ReasoningPolicy()
    model_reasoning: dict[str, ReasoningPolicy] = {}

    def reasoning_of(self, model: str) -> ReasoningPolicy:
        """What holds for one model."""
        return self.model_reasoning.get(model, self.reasoning)


class ModelCard(Struct, frozen=True, kw_only=True):
    """One entry of ``GET /v1/models``: the union over the backends' own answers, as raw JSON object text."""

    id: str
    raw: bytes


class Snapshot(Struct, frozen=True, kw_only=True):
    """Everything that a worker needs to serve."""

    generation: int
    pools: tuple[PoolView, ...]
    backends: tuple[BackendView, ...]
    cards: tuple[ModelCard, ...] = ()
    policy: WorkerPolicy = WorkerPolicy()
