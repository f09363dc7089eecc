"""`pacekeeper version`."""

from __future__ import annotations

import json
from collections.abc import Callable

import gateway


def test_the_release(pacekeeper: Callable[..., str]) -> None:
    assert pacekeeper("version") == f"pacekeeper {gateway.__version__}\n"
    found = json.loads(pacekeeper("version", "--json"))
    assert found["version"] == gateway.__version__
    assert set(found) == {"version", "python", "platform"}
