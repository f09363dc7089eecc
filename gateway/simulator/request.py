"""What goes into the simulated engine and what comes out of it: requests, tokens, emissions, counters.

Plain values between the engine machine (pure, virtual time) and its faces (sockets).  Instants are seconds on whatever
clock the caller counts by.  Must not know of HTTP, JSON or logs.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Channel(StrEnum):
    """Which stream of the answer a token belongs to; ``marker`` tokens have no text of their own for a client."""

    REASONING = "reasoning"
    CONTENT = "content"
    TOOL = "tool"
    MARKER = "marker"


class Token(Struct, frozen=True, gc=False):
    """One token: its raw text, its channel and its number in the vocabulary.

    ``text`` is what a server without parsers would print: a marker has ``<think>``, ``</think>``, ``<tool_call>``,
    ``</tool_call>`` or (end of answer) nothing.  All but the last token of a character of several have no text.
    A tool token's text is a piece of the JSON between the markers.
    """

    text: str
    channel: Channel
    number: int


class SimRequest(Struct, frozen=True, kw_only=True):
    """One request as the engine needs it.

    ``reasoning_share`` None takes the preset's; 0 means that the answer does not think.  ``topic`` is the text that
    chooses the kind of answer (``count``, ``ponder``, ``emoji``); ``seed`` fixes the words: the same seed and topic
    give the same answer on every engine.  ``tools`` are names that may be called; the first one is.  ``prefix`` has the
    keys of the prompt's whole blocks; without them nothing of it can be found in the cache.
    """

    prompt_tokens: int
    max_tokens: int
    min_tokens: int = 0
    ignore_eos: bool = False
    stream: bool = True
    n: int = 1
    reasoning_share: float | None = None
    tools: tuple[str, ...] = ()
    topic: str = ""
    seed: int = 0
    logprobs: bool = False
    prefix: tuple[int, ...] = ()


class Timing(Struct, frozen=True, kw_only=True):
    """The life of one choice, as instants; ``first_token_at`` is None when nothing came.

    ``cached_tokens`` of its prompt were found in the cache, ``extra_prompt_tokens`` were added to it by a shift of
    context, and ``preemptions`` times it lost its place and was computed again.  ``accepted``: how many drafts each
    step with drafts kept.
    """

    queued_at: float
    scheduled_at: float | None
    first_token_at: float | None
    last_token_at: float | None
    cached_tokens: int = 0
    extra_prompt_tokens: int = 0
    preemptions: int = 0
    accepted: tuple[int, ...] = ()


class Emission(Struct, frozen=True, gc=False):
    """Tokens of one choice that leave the engine together; ``finish`` is stop, length, tool_calls or abort on the last.

    ``generated_tokens`` and ``reasoning_tokens`` count from the start of the choice; markers are generated tokens, but
    not reasoning tokens.  ``timing`` comes with ``finish``.
    """

    request_id: int
    choice: int
    tokens: tuple[Token, ...]
    finish: str | None
    generated_tokens: int
    reasoning_tokens: int
    timing: Timing | None = None


class Counters(Struct, frozen=True, kw_only=True):
    """What the engine's metrics page is made from; totals since the start, gauges of now.

    ``finished`` has one count a reason.  As in the real one, an abort by a client that left is not among them.
    ``extra_prompt_tokens`` is what a shift of context adds to each prompt.  ``prefix_queries`` are prompt tokens that
    were looked for in the cache, ``prefix_hits`` those that were there.
    """

    running: int
    waiting: int
    kv_cache_usage: float
    prompt_tokens_total: int
    generation_tokens_total: int
    iterations_total: int
    finished: dict[str, int]
    drafts_total: int
    draft_tokens_total: int
    accepted_tokens_total: int
    ttft_sum_s: float
    ttft_count: int
    inter_token_sum_s: float
    inter_token_count: int
    queue_sum_s: float
    extra_prompt_tokens: int
    prefix_queries_total: int = 0
    prefix_hits_total: int = 0
    preemptions_total: int = 0


class QueueFull(Exception):
    """No place to run and none to wait: the face answers 503."""


class EngineDead(Exception):
    """The engine has crashed: the face answers 500 and the process ends."""
