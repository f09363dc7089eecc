"""Configuration: one YAML file and ``PACEKEEPER_...`` variables, read into frozen models.

Not a station.  ``load`` is the way in; it reports every fault at once, each with its place.  Two parts: *install*
(a restart changes it) and *runtime* (a reload changes it).  Nothing here is written back, and no value of a secret is
ever held: only the names of the variables that hold one.
"""

from gateway.settings.install import Install
from gateway.settings.load import Settings, load, parse
from gateway.settings.runtime import Backend, Pool, Runtime
from gateway.settings.views import health_policy, to_adapters, to_policy, to_pool_view, unwanted_adapters

__all__ = [
    "Backend",
    "Install",
    "Pool",
    "Runtime",
    "Settings",
    "health_policy",
    "load",
    "parse",
    "to_adapters",
    "to_policy",
    "to_pool_view",
    "unwanted_adapters",
]
