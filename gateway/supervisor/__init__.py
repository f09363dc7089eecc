"""The supervisor: the main process, which keeps the listening sockets and the children, and decides nothing itself.

It opens the listeners, starts control and the workers, performs what ``gateway.core.supervision`` decides, speaks to
the service manager and passes signals on.  It knows its children by their command lines only, serves nothing and
loads no web server and no models.
"""

from gateway.supervisor.loop import run
from gateway.supervisor.plan import Plan

__all__ = ["Plan", "run"]
