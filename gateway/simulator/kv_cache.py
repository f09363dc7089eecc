"""The cache of keys and values: blocks of 16 tokens, who holds them, and what free ones still remember.

Pure; owner: one engine's scheduler.  A block of a prompt has a key, made from all tokens up to its end; a block that
nobody holds keeps its key until its place is needed, the one longest unused first.  Blocks of generated tokens have no
key here: they are forgotten with their sequence.  Must not know of time, queues or what is computed when.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

BLOCK_TOKENS = 16


class Hold:
    """The blocks of one sequence; owner: the sequence, only the cache changes it."""

    __slots__ = ("blocks", "known", "mine")

    def __init__(self) -> None:
        self.blocks = 0
        self.known = 0  # so many blocks of the prompt were found or offered
        self.mine: list[int] = []  # keys of the blocks that are held by key, in the order of the prompt


class KvCache:
    """All blocks of one engine.  A block that several sequences share counts once."""

    __slots__ = ("_caches", "_held", "_idle", "blocks", "used")

    def __init__(self, tokens: int, *, caches: bool) -> None:
        self.blocks = max(1, tokens // BLOCK_TOKENS)
        self.used = 0
        self._caches = caches
        self._held: dict[int, int] = {}  # key -> how many sequences hold it
        self._idle: OrderedDict[int, None] = OrderedDict()  # keys of free blocks, longest unused first

    def usage(self) -> float:
        """The part of all blocks that somebody holds."""
        return min(1.0, self.used / self.blocks)

    def remembered(self) -> int:
        """How many free blocks still have what was in them."""
        return len(self._idle)

    def found(self, keys: Sequence[int], context_tokens: int) -> int:
        """How many leading blocks are there; never all tokens, as the last one must be computed for its answer."""
        if not self._caches:
            return 0
        most = min(len(keys), max(0, context_tokens - 1) // BLOCK_TOKENS)
        for at in range(most):
            if keys[at] not in self._held and keys[at] not in self._idle:
                return at
        return most

    def admit(self, hold: Hold, keys: Sequence[int], *, context_tokens: int, found: int, forced: bool) -> bool:
        """Take all blocks that a context needs, ``found`` of them as they are; False where there is no room.

        ``forced`` takes them even so: a sequence that is alone runs, whatever it needs.
        """
        needed = _blocks_of(context_tokens)
        woken = sum(keys[at] in self._idle for at in range(found))
        if not forced and self.used + woken + needed - found > self.blocks:
            return False
        for key in keys[:found]:
            if key in self._idle:
                del self._idle[key]
                self.used += 1
            self._held[key] = self._held.get(key, 0) + 1
            hold.mine.append(key)
        hold.known = hold.blocks = found
        self._take(hold, needed - found)
        return True

    def grow(self, hold: Hold, *, tokens: int, forced: bool) -> bool:
        """Make room for a sequence of so many tokens; False where there is none."""
        more = _blocks_of(tokens) - hold.blocks
        if not forced and self.used + more > self.blocks:
            return False
        self._take(hold, more)
        return True

    def offer(self, hold: Hold, keys: Sequence[int], computed_tokens: int) -> None:
        """So much of a prompt is computed: its whole blocks can be found from now on, unless such are there already."""
        if not self._caches:
            return
        most = min(len(keys), computed_tokens // BLOCK_TOKENS)
        for at in range(hold.known, most):
            key = keys[at]
            if key not in self._held and key not in self._idle:
                self._held[key] = 1
                hold.mine.append(key)
        hold.known = max(hold.known, most)

    def release(self, hold: Hold) -> None:
        """Give everything back; the end of a prompt is forgotten before its beginning."""
        self.used -= hold.blocks - len(hold.mine)
        for key in reversed(hold.mine):
            if self._held[key] > 1:
                self._held[key] -= 1
                continue
            del self._held[key]
            self.used -= 1
            self._idle[key] = None
        hold.mine.clear()
        hold.blocks = hold.known = 0
        self._forget()

    def _take(self, hold: Hold, blocks: int) -> None:
        self.used += blocks
        hold.blocks += blocks
        self._forget()

    def _forget(self) -> None:
        """Free blocks are all that is not held: what they remember goes when their place does."""
        while self._idle and self.used + len(self._idle) > self.blocks:
            self._idle.popitem(last=False)


def _blocks_of(tokens: int) -> int:
    return max(1, -(-tokens // BLOCK_TOKENS))
