"""What holds for every test: no event loop but the one a test asks for.

looptime asks the policy for the current loop before plain tests too, and asyncio would make one that nobody closes:
a ResourceWarning in whichever test runs when it is collected. Once a loop (here: none) was set, it makes no more.
"""

from __future__ import annotations

import asyncio


def pytest_sessionstart() -> None:
    """Say that there is no current loop."""
    asyncio.set_event_loop(None)
