"""What a prompt has in common with others: a key for each whole block of its tokens, made from all tokens before.

Pure.  Two prompts share blocks as far as they agree from their first token on, and only under the same salt.  Must not
know of text: the words it is handed stand for tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.simulator.kv_cache import BLOCK_TOKENS


def block_keys(words: Sequence[str], *, salt: str = "") -> tuple[int, ...]:
    """The keys of the whole blocks of a prompt."""
    keys = []
    key = hash(("prompt", salt))
    for end in range(BLOCK_TOKENS, len(words) + 1, BLOCK_TOKENS):
        key = hash((key, *words[end - BLOCK_TOKENS : end]))
        keys.append(key)
    return tuple(keys)
