"""What clients are told of each way in which an exchange can end."""

from __future__ import annotations

import pytest

from gateway.core.stream.summary import Ending
from gateway.errors import Fault
from gateway.proxy.forward import error_for


@pytest.mark.parametrize("ending", list(Ending))
def test_every_ending_has_an_error_that_is_not_the_client_s_fault(ending: Ending) -> None:
    error = error_for(ending)
    assert error.fault in {Fault.BACKEND, Fault.GATEWAY}
    assert 500 <= error.status <= 504
    assert len(error.message) > 20
    assert (error.retry_after_s is not None) is (ending is Ending.SHUTDOWN)
