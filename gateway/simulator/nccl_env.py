"""What NCCL makes of its environment: values taken, ignored, capped, or deadly, by version.

Pure.  The rules are those of NCCL's own parsing: words of ``NCCL_PROTO`` and ``NCCL_ALGO`` by list and function, path
words of ``NCCL_P2P_LEVEL`` exactly as spelt, integers as C reads them (``true`` is 0, ``8x`` is 8, ``010`` is 8).
Must not know what anything costs; ``nccl`` does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct

PROTOCOLS = ("LL", "LL128", "Simple")
ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
LEVELS = ("LOC", "NVL", "PIX", "PXB", "PHB", "SYS")
_LEGACY_LEVELS = ("LOC", "PIX", "PXB", "PHB", "SYS")
_AUTO = 2  # allowed where the hardware is known to bear it
_DEFAULT_PROTOCOLS = (1, _AUTO, 1)
_DEFAULT_ALGORITHMS = (1, 1, 0, 0, 0, 0, 0)  # the others need NVLink switches, a network or another function
_GRAMMAR_SINCE = (2, 24)
_ZERO_FILL_SINCE = (2, 31)
_INTEGER = re.compile(r"\s*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")

Row: TypeAlias = tuple[int, ...]
Table: TypeAlias = dict[str, Row]


class NcclSettings(Struct, frozen=True, kw_only=True):
    """The environment as NCCL understands it.

    ``protocols`` and ``algorithms``: per function, 0 forbidden, 1 allowed, 2 left to the eligibility check.
    ``p2p_level`` None is the version's default.  ``failure`` is why initialisation fails, None when it does not.
    ``said`` are the INFO messages about the variables, in order.
    """

    protocols: Table
    algorithms: Table
    p2p_level: str | None
    p2p_disable: bool
    shm_disable: bool
    min_ctas: int | None
    max_ctas: int | None
    graph_file: str | None
    buffer_bytes: int | None
    failure: str | None
    said: tuple[str, ...]


def version_of(text: str) -> tuple[int, ...]:
    """``2.30.7+cuda13.0`` as (2, 30, 7)."""
    return tuple(int(part) for part in re.findall(r"\d+", text.split("+", maxsplit=1)[0]))


def c_integer(text: str) -> int:
    """The number that C's strtol with base 0 reads at the start of ``text``; 0 where there is none."""
    found = _INTEGER.match(text)
    if found is None:
        return 0
    sign, digits = found.groups()
    base = 16 if digits[:2].lower() == "0x" else 8 if digits[0] == "0" else 10
    value = int(digits, base)
    return -value if sign == "-" else value


def read_environment(
    environment: Mapping[str, str], version: tuple[int, ...], *, bears_ll128: bool = False
) -> NcclSettings:
    """The settings that NCCL of ``version`` takes from ``environment``; ``bears_ll128``: the box passes its check."""
    reader = _Reader(environment, version, bears_ll128=bears_ll128)
    protocols = reader.table("NCCL_PROTO", PROTOCOLS, _DEFAULT_PROTOCOLS)
    algorithms = reader.table("NCCL_ALGO", ALGORITHMS, _DEFAULT_ALGORITHMS)
    reader.zero_fill(algorithms)
    reader.complete(protocols, algorithms)
    low, high = reader.ctas()
    for name in ("NCCL_IB_DISABLE", "NCCL_NVLS_ENABLE"):
        reader.integer(name)  # told, and without effect on one host without NVLink
    return NcclSettings(
        protocols=protocols,
        algorithms=algorithms,
        p2p_level=reader.level(),
        p2p_disable=reader.flag("NCCL_P2P_DISABLE"),
        shm_disable=reader.flag("NCCL_SHM_DISABLE"),
        min_ctas=low,
        max_ctas=high,
        graph_file=reader.text("NCCL_GRAPH_FILE"),
        buffer_bytes=reader.integer("NCCL_BUFFSIZE"),
        failure=reader.failure,
        said=tuple(reader.said),
    )


class _Reader:
    """Reads one environment; keeps what was said and the first failure."""

    def __init__(self, environment: Mapping[str, str], version: tuple[int, ...], *, bears_ll128: bool) -> None:
        self.environment = environment
        self.version = version
        self.bears_ll128 = bears_ll128
        self.strict = version >= _GRAMMAR_SINCE
        self.said: list[str] = []
        self.failure: str | None = None

    def text(self, name: str) -> str | None:
        value = self.environment.get(name)
        if not value:
            return None
        self.said.append(f"{name} set by environment to {value}")
        return value

    def integer(self, name: str) -> int | None:
        value = self.environment.get(name)
        if not value:
            return None
        number = c_integer(value)
        self.said.append(f"{name} set by environment to {number}.")
        return number

    def flag(self, name: str) -> bool:
        return self.integer(name) == 1

    def level(self) -> str | None:
        value = self.text("NCCL_P2P_LEVEL")
        if value is None:
            return None
        if value[0].isdigit():
            return _LEGACY_LEVELS[min(c_integer(value), len(_LEGACY_LEVELS) - 1)]
        return value if value in LEVELS else None  # NODE, sys, SYSTEM: ignored without a word

    def ctas(self) -> tuple[int | None, int | None]:
        most = 64 if self.version >= (2, 25) else 32
        found: list[int | None] = []
        for new, old in (("NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS"), ("NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS")):
            number = self.integer(new) or self.integer(old) or 0
            found.append(min(number, most) if number > 0 else None)
        low, high = found
        if low is not None and high is not None and low > high:
            self.said.append(f"NCCL_MIN_CTAS {low} above NCCL_MAX_CTAS, using {high}")
            low = high
        return low, high

    def table(self, name: str, words: tuple[str, ...], default: Row) -> Table:
        table = dict.fromkeys(FUNCTIONS, default)
        value = self.text(name)
        if value is None:
            return table
        for at, entry in enumerate(value.split(";") if self.strict else [value]):
            head, colon, rest = entry.partition(":")
            functions = [f for f in FUNCTIONS if f.lower() == head.lower()] if colon else list(FUNCTIONS)
            if self.strict and (not functions or (not colon and at > 0)):
                self._fail(f"{name}: cannot read the entry {entry!r}")
                return table
            row = self._row(name, rest if colon else entry, words)
            table.update(dict.fromkeys(functions, row))
        return table

    def _row(self, name: str, listed: str, words: tuple[str, ...]) -> Row:
        rest = listed.removeprefix("^")
        # The caret flips both sides: what is not named becomes allowed, LL128 without its check as well.
        named, unnamed = (0, 1) if rest != listed else (1, 0)
        chosen = {word.lower() for word in rest.split(",")}
        known = {word.lower() for word in words}
        if self.strict and chosen - known:
            self._fail(f"{name}: unrecognized element token {min(chosen - known)!r} in {listed!r}")
        return tuple(named if word.lower() in chosen else unnamed for word in words)

    def zero_fill(self, algorithms: Table) -> None:
        """2.31 clears the algorithms of functions that ``NCCL_ALGO`` does not name, where a plain proto list rules."""
        listed, protos = self.environment.get("NCCL_ALGO", ""), self.environment.get("NCCL_PROTO", "")
        first = listed.split(";")[0]
        if self.version < _ZERO_FILL_SINCE or not listed or ":" not in first or not protos or ":" in protos:
            return
        named = {entry.partition(":")[0].lower() for entry in listed.split(";")}
        for function in FUNCTIONS:
            if function.lower() not in named:
                algorithms[function] = (0,) * len(ALGORITHMS)

    def complete(self, protocols: Table, algorithms: Table) -> None:
        """Make sure that what vLLM calls can run: older versions fall back to the ring, newer ones fail."""
        for function in ("AllReduce", "AllGather", "Broadcast"):
            tree, ring = algorithms[function][:2]
            usable = ring or (tree and function == "AllReduce")
            eligible = [
                flag for word, flag in zip(PROTOCOLS, protocols[function], strict=True) if self._runs(word, flag)
            ]
            if usable and eligible:
                continue
            if self.strict:
                self._fail(f"No algorithm/protocol available for function {function}")
            else:
                algorithms[function] = _DEFAULT_ALGORITHMS
                protocols[function] = protocols[function] if eligible else _DEFAULT_PROTOCOLS

    def _runs(self, protocol: str, flag: int) -> bool:
        if protocol != "LL128" or self.bears_ll128:
            return flag != 0
        return flag == 1 and self.version < _ZERO_FILL_SINCE  # 2.31 checks again, even what was named

    def _fail(self, why: str) -> None:
        if self.failure is None:
            self.failure = why
