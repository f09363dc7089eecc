"""What clients are told of each way in which an exchange can end."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from gateway.core.routing.snapshot import TimerPolicy
from gateway.core.stream.silence import PulseTrack
from gateway.core.stream.summary import Ending
from gateway.errors import Fault
from gateway.proxy.forward import Exchange, error_for
from gateway.proxy.upstream import Connection, Target
from gateway.proxy.wire import ClientWire


class SlowWire:
    """A client's connection of which the test says how much has not been taken."""

    def __init__(self) -> None:
        self.unsent_bytes = 1000
        self.was_cut = False

    def attach(self, _sink: object) -> None:
        """Nobody is told."""

    def detach(self) -> None:
        """Nobody is told."""

    def cut(self) -> None:
        self.was_cut = True


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_a_client_that_takes_something_has_as_long_again() -> None:
    wire = SlowWire()
    exchange = Exchange(
        Connection(Target("127.0.0.1", 1, "", tls=False, tls_ca="")),
        cast("ClientWire", wire),
        choose=lambda _exchange, _head: Ending.NOT_SSE,
        timers=TimerPolicy(client_write_s=60),
        pulses=PulseTrack(600),
        clock=asyncio.get_running_loop().time,
    )
    exchange.client_blocked()
    for _ in range(5):
        await asyncio.sleep(59)
        wire.unsent_bytes -= 1
    assert exchange.ending is None, "slow, but it reads"
    await asyncio.sleep(121)
    assert (exchange.ending, wire.was_cut) == (Ending.CLIENT_STALLED, True)


@pytest.mark.parametrize("ending", list(Ending))
def test_every_ending_has_an_error_that_is_not_the_client_s_fault(ending: Ending) -> None:
    error = error_for(ending)
    assert error.fault in {Fault.BACKEND, Fault.GATEWAY}
    assert 500 <= error.status <= 504
    assert len(error.message) > 20
    assert (error.retry_after_s is not None) is (ending is Ending.SHUTDOWN)
