"""What a prompt has in common with others: a key for each whole block of its tokens, made from all tokens before.

Pure.  Two prompts share blocks as far as they agree from their first token on, and only under the same salt and with
the same tool.  Must not know how text becomes tokens: the words it is handed stand for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.simulator.kv_cache import BLOCK_TOKENS

_TEMPLATE = "<|template|>"


def prompt_keys(words: Sequence[str], *, tokens: int, tool: str, salt: str) -> tuple[int, ...]:
    """The keys of a prompt that has more tokens than words: those of the template, taken as if they came last.

    So a conversation's next turn has the keys of its beginning, whatever the template puts around each message.  A
    prompt without words (given as token ids) has none: nothing is known of what it has in common with others.
    """
    if not words:
        return ()
    return block_keys([*words, *[_TEMPLATE] * (tokens - len(words))], salt=f"{salt}/{tool}")


def block_keys(words: Sequence[str], *, salt: str = "") -> tuple[int, ...]:
    """The keys of the whole blocks of a prompt that has these tokens."""
    keys = []
    key = hash(("prompt", salt))
    for end in range(BLOCK_TOKENS, len(words) + 1, BLOCK_TOKENS):
        key = hash((key, *words[end - BLOCK_TOKENS : end]))
        keys.append(key)
    return tuple(keys)
