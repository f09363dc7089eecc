"""What holds for every test: no event loop but the one a test asks for, and no example that is timed.

looptime asks the policy for the current loop before plain tests too, and asyncio would make one that nobody closes:
a ResourceWarning in whichever test runs when it is collected. Once a loop (here: none) was set, it makes no more.
"""

from __future__ import annotations

import asyncio

from hypothesis import HealthCheck, settings

# Nothing asserts on real time, so nor does hypothesis: a busy machine is no counter-example.  The rest is as hypothesis
# chooses by itself: random here, the same examples every time where CI is set.
settings.register_profile("untimed", parent=settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_sessionstart() -> None:
    """Say that there is no current loop."""
    asyncio.set_event_loop(None)
