"""Pacekeeper: a serving gateway for vLLM.

Reading order: `docs/vocabulary.md`, then `proxy/pipeline.py` (a request's way through the five
stations admit, route, forward, relay, settle), then `core/stream/` (how a stream is framed, counted
and timed), `supervisor/` (which processes there are) and `control/loop.py` (who owns the fleet).
Imports go down only: cli, app and supervisor, proxy and control and admin, drivers and fleet and
telemetry and store, ports and settings, core and aio, errors.

This module must stay free of work: every process imports it first.
"""


def __getattr__(name: str) -> str:
    """Look up `__version__` in the installed distribution, only when somebody asks for it."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    return version("pacekeeper")
