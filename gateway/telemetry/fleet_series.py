"""The catalogue of metrics about the fleet and the gateway itself: backends, pools, workers, configuration, history.

Read at the moment of a scrape from what control knows, so that nothing stale is told.
"""

from __future__ import annotations

from gateway.telemetry.series import Kind, Series


class FleetSeries:
    """Metrics about the fleet and the gateway itself, by attribute."""

    probes = Series(
        name="pacekeeper_probes_total",
        kind=Kind.COUNTER,
        help="Probes of backends by what was asked for and what came of it.",
        labels=("backend", "path", "result"),
    )
    transitions = Series(
        name="pacekeeper_backend_transitions_total",
        kind=Kind.COUNTER,
        help="Changes of a backend's state, by the state entered.",
        labels=("backend", "state"),
    )
    backend_state = Series(
        name="pacekeeper_backend_state",
        kind=Kind.GAUGE,
        help="1 for the state that a backend is in, 0 for every other.",
        labels=("pool", "backend", "state"),
    )
    backend_in_flight = Series(
        name="pacekeeper_backend_in_flight",
        kind=Kind.GAUGE,
        help="Requests of this gateway on a backend, over all workers.",
        labels=("pool", "backend"),
    )
    engine_running = Series(
        name="pacekeeper_engine_running",
        kind=Kind.GAUGE,
        help="Requests in the engine's batches, as it says itself, whoever sent them.",
        labels=("pool", "backend"),
    )
    engine_waiting = Series(
        name="pacekeeper_engine_waiting",
        kind=Kind.GAUGE,
        help="Requests in the engine's queue, as it says itself.",
        labels=("pool", "backend"),
    )
    engine_tokens = Series(
        name="pacekeeper_engine_generation_tokens_total",
        kind=Kind.COUNTER,
        help="Tokens that the engine has generated since it started, as it says itself; falls when it restarts.",
        labels=("pool", "backend"),
    )
    pool_serving = Series(
        name="pacekeeper_pool_serving",
        kind=Kind.GAUGE,
        help="Backends of a pool that serve.",
        labels=("pool",),
    )
    pool_min_available = Series(
        name="pacekeeper_pool_min_available",
        kind=Kind.GAUGE,
        help="Fewer serving backends than this leave the pool short.",
        labels=("pool",),
    )
    pool_waiting = Series(
        name="pacekeeper_pool_waiting",
        kind=Kind.GAUGE,
        help="Requests that wait for a place on a backend of a pool, over all workers; while none of its backends serves, for "
        "one to come back (hold_s).",
        labels=("pool",),
    )
    pool_longest_wait = Series(
        name="pacekeeper_pool_longest_wait_seconds",
        kind=Kind.GAUGE,
        help="How long the request has waited for a backend of a pool that has waited longest; 0 while none waits.",
        labels=("pool",),
    )
    quarantined = Series(
        name="pacekeeper_quarantined",
        kind=Kind.GAUGE,
        help="Fingerprints of requests that are refused since backends died of them; the refused requests are "
        'pacekeeper_refusals_total{reason="quarantined"}.',
    )
    stopping = Series(
        name="pacekeeper_stopping",
        kind=Kind.GAUGE,
        help="1 while the gateway is being stopped and open answers finish.",
    )
    keys = Series(
        name="pacekeeper_keys",
        kind=Kind.GAUGE,
        help="Keys that clients may use; there where they need one.",
    )
    keys_usable = Series(
        name="pacekeeper_keys_file_usable",
        kind=Kind.GAUGE,
        help="1 while the file of keys can be used; with 0 the keys that were read last stay.",
    )
    in_flight = Series(
        name="pacekeeper_in_flight",
        kind=Kind.GAUGE,
        help="Requests admitted and not yet settled, over all workers.",
    )
    worker_info = Series(
        name="pacekeeper_worker_info",
        kind=Kind.GAUGE,
        help="1 for each connected worker; which process is in which slot.",
        labels=("slot", "pid"),
    )
    worker_in_flight = Series(
        name="pacekeeper_worker_in_flight",
        kind=Kind.GAUGE,
        help="Requests that a worker holds.",
        labels=("slot",),
    )
    worker_connections = Series(
        name="pacekeeper_worker_connections",
        kind=Kind.GAUGE,
        help="Client connections that a worker has open.",
        labels=("slot",),
    )
    worker_silent = Series(
        name="pacekeeper_worker_heartbeat_age_seconds",
        kind=Kind.GAUGE,
        help="Time since a worker's last heartbeat; above 2 it is not fresh.",
        labels=("slot",),
    )
    generation = Series(
        name="pacekeeper_snapshot_generation",
        kind=Kind.GAUGE,
        help="Number of the snapshot that workers are to serve from.",
    )
    build_info = Series(
        name="pacekeeper_build_info",
        kind=Kind.GAUGE,
        help="1; the labels tell what runs.",
        labels=("version", "python"),
    )
    started = Series(
        name="pacekeeper_control_start_time_seconds",
        kind=Kind.GAUGE,
        help="When the control process started, in seconds since 1970; counters begin anew then.",
    )
    config_loaded = Series(
        name="pacekeeper_config_loaded_timestamp_seconds",
        kind=Kind.GAUGE,
        help="When the configuration in use was read, in seconds since 1970.",
    )
    history_rows = Series(
        name="pacekeeper_history_rows",
        kind=Kind.GAUGE,
        help="Rows in the history store.",
    )
    history_usable = Series(
        name="pacekeeper_history_usable",
        kind=Kind.GAUGE,
        help="1 while the history store can be written.",
    )
    log_dropped = Series(
        name="pacekeeper_log_lines_dropped_total",
        kind=Kind.COUNTER,
        help="Log lines of control lost because nobody read its standard error.",
    )
