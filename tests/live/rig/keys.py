"""Keys of clients on a running gateway, made as an operator makes them."""

from pathlib import Path
from typing import Any

from tests.live.rig import wire
from tests.live.rig.gateway import Gateway
from tests.live.rig.processes import until

KNOWN_S = 10.0


def wanted(folder: Path, name: str) -> dict[str, Any]:
    """The settings of a gateway whose clients need keys, to give it as `runtime`."""
    return {"auth": {"clients": "keys", "keys_file": str(folder / f"keys-{name}.yaml")}}


def make(gateway: Gateway, key_id: str, *options: str) -> str:
    """A new key, known to the gateway's workers when this returns; `options` as for `pacekeeper keys create`."""
    key = str(gateway.run("keys", "create", key_id, "--id", key_id, *options)["key"])
    bearer = {"Authorization": f"Bearer {key}"}

    def known() -> bool:
        return wire.get(gateway.port, "/v1/models", headers=bearer)[0] != 401

    until(known, f"the key {key_id} known", within_s=KNOWN_S)
    return key
