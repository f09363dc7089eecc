"""What is wrong with a box as a file: written whole, read item by item.

Pure.  A record may have been written by another version, by hand, or for a box with more GPUs: what cannot be on this
box is left out and told, and never ends an engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from gateway.simulator.drift import OF_THE_PROCESS, InForce
from gateway.simulator.gpu import BoxRecord, GpuHost
from gateway.simulator.presets import Box
from gateway.simulator.reading_noise import ReadingNoise
from gateway.simulator.readings import XidEvent


def written(record: BoxRecord) -> bytes:
    """Return a record as a file has it."""
    return msgspec.json.encode(record)


def read_record(data: bytes, box: Box) -> tuple[BoxRecord | None, list[str]]:
    """Return (what of a file can be on ``box``, one line for each thing that cannot); None for no record at all."""
    try:
        tree = msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        return None, [f"the whole record: {error}"]
    host, in_force, dropped = GpuHost(box), list[InForce](), list[str]()

    def injection(told: Any) -> None:
        one = msgspec.convert(told, InForce)
        host.check_gpu(one.drift.gpu)
        if one.drift.kind in OF_THE_PROCESS:
            raise ValueError(f"{one.drift.kind} is of a process")
        in_force.append(one)

    def xid(told: Any) -> None:
        event = msgspec.convert(told, XidEvent)
        host.xid(event.code, gpu=event.gpu, now=event.at)

    def wedged(told: tuple[str, Any]) -> None:
        host.wedge(int(told[0]), msgspec.convert(told[1], int))

    def noise(told: Any) -> None:
        host.noise = msgspec.convert(told, ReadingNoise)

    def each(name: str, items: list[Any], *, take: Callable[[Any], None]) -> None:
        for told in items:
            try:
                take(told)
            except ValueError as error:  # msgspec's are as well
                dropped.append(f"{name} {told}: {error}")

    each("in_force", _items(tree.get("in_force")), take=injection)
    each("xids", _items(tree.get("xids")), take=xid)
    each("wedged", _items(tree.get("wedged")), take=wedged)
    each(
        "latched",
        _items(tree.get("latched")),
        take=lambda told: host.latch_on(int(told[0]), pid=msgspec.convert(told[1], int)),
    )
    each("noise", [tree.get("noise", {})], take=noise)
    host.injections.restore(in_force)
    return host.record(), dropped


def _items(told: Any) -> list[Any]:
    """What a list has, or a table as pairs; nothing of anything else."""
    if isinstance(told, dict):
        return list(told.items())
    return told if isinstance(told, list) else []
