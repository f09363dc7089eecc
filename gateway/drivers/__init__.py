"""How engines are run, one module a driver, named in one explicit table.

A driver is chosen once, by the ``driver`` of a backend's configuration.  Must not decide when an engine is started or
stopped, and knows nothing of requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gateway.drivers.static import StaticDriver
from gateway.ports import Driver

DRIVERS: Final[Mapping[str, Driver]] = MappingProxyType({StaticDriver.name: StaticDriver()})
"""Every driver by the name that the configuration uses."""
