"""What NCCL prints at INFO while it starts on a simulated box: transports, graph, cost table.

Pure; the material for predicting a profile before a restart.  Lines of rank 0, in NCCL's wording, with the subsystems
that the environment asks for (``INIT,ENV`` unless ``NCCL_DEBUG_SUBSYS`` says otherwise).  Must not invent a number that
``nccl`` does not use for its choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gateway.simulator.nccl import AllReduce, Backend, Transport
from gateway.simulator.nccl_env import ALGORITHMS, FUNCTIONS, PROTOCOLS
from gateway.simulator.presets import Graph

_BLOCK = 3  # algorithms side by side in the cost table
_MAX_THREADS = {"LL": 512, "LL128": 640, "Simple": 512}
_VIA = {Transport.P2P: "P2P/CUMEM", Transport.SHM: "SHM/direct/direct", Transport.NET: "NET/Socket/0"}


def info_lines(allreduce: AllReduce, environment: Mapping[str, str], *, host: str, pid: int) -> list[str]:
    """The lines of one start; none when there is no communicator or ``NCCL_DEBUG`` does not ask for them."""
    if allreduce.backend is Backend.NONE:
        return []
    level = environment.get("NCCL_DEBUG", "").upper()
    prefix = f"{host}:{pid}:{pid} [0] NCCL"
    failed = [f"{prefix} WARN {allreduce.settings.failure}"] if allreduce.settings.failure else []
    if level not in {"INFO", "TRACE"}:
        return failed if level in {"VERSION", "WARN"} else []
    return [f"{prefix} INFO {line}" for line in _info(allreduce, _subsystems(environment))] + failed


def _subsystems(environment: Mapping[str, str]) -> frozenset[str]:
    asked = environment.get("NCCL_DEBUG_SUBSYS", "INIT,ENV").upper().split(",")
    return frozenset(("INIT", "ENV", "GRAPH", "TUNING") if "ALL" in asked else asked)


def _info(allreduce: AllReduce, asked: frozenset[str]) -> Iterator[str]:
    box = allreduce.box
    if "INIT" in asked:
        yield f"NCCL version {box.nccl_version}+simulated"
        yield f"comm 0x51 rank 0 nRanks {box.gpus} nNodes 1 localRanks {box.gpus} localRank 0 MNNVL 0"
    if "ENV" in asked:
        yield from allreduce.settings.said
    if allreduce.settings.failure:
        return
    if "GRAPH" in asked:
        yield from _graph(allreduce)
    if "INIT" in asked:
        for channel in range(allreduce.channels):
            yield f"Channel {channel:02d}/0 : 0[0] -> 1[1] via {_VIA[allreduce.transport]}"
        count = allreduce.channels
        yield f"{count} coll channels, 0 collnet channels, 0 nvls channels, {count} p2p channels, 1 p2p channels per peer"
    if "ENV" in asked or "TUNING" in asked:
        yield from _matrix(allreduce)
    if "TUNING" in asked:
        yield from _table(allreduce)


def _graph(allreduce: AllReduce) -> Iterator[str]:
    broken = allreduce.graph is Graph.BROKEN
    count = 2 if broken else allreduce.box.channels
    each = allreduce.believed_gbps / count
    kind = "SYS/SYS" if broken else f"{allreduce.box.link}/PIX"
    for pattern in (4, 1):
        yield f"Pattern {pattern}, crossNic 0, nChannels {count}, bw {each:f}/{each:f}, type {kind}, sameChannels 1"


def _matrix(allreduce: AllReduce) -> Iterator[str]:
    """One message of several lines, as NCCL prints it."""
    heads = "".join(f"{word:>8}  " for word in PROTOCOLS), "".join(f"{word:>13}  " for word in ALGORITHMS)
    lines = ["Enabled NCCL Func/Proto/Algo Matrix:", f"{'Function':>13} | {heads[0]} | {heads[1]}"]
    for function in FUNCTIONS:
        protocols = "".join(f"{flag:8d}  " for flag in allreduce.settings.protocols[function])
        algorithms = "".join(f"{flag:13d}  " for flag in allreduce.settings.algorithms[function])
        lines.append(f"{function:>13} | {protocols} | {algorithms}")
    yield "\n".join(lines)


def _table(allreduce: AllReduce) -> Iterator[str]:
    for at in range(0, len(ALGORITHMS), _BLOCK):
        block = ALGORITHMS[at : at + _BLOCK]
        yield "  Algorithm   |" + "".join(f" {'':>14}   {name:>14}   {'':>14} |" for name in block)
        yield "  Protocol    |" + "".join(f" {word:>14} |" for _ in block for word in PROTOCOLS)
        yield " Max NThreads |" + "".join(f" {_MAX_THREADS[word]:14d} |" for _ in block for word in PROTOCOLS)
        # Only the all-reduce is modelled; a row of numbers for the others would be made up.
        cells = [
            allreduce.table(name, word) if name in {"Tree", "Ring"} else (0.0, 0.0)
            for name in block
            for word in PROTOCOLS
        ]
        yield f"{'AllReduce':>13} |" + "".join(f"{latency:8.1f}/{gbps:6.1f} |" for latency, gbps in cells)
