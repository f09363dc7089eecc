"""The words and values that measuring hands on: how an answer ended, what was counted and how fast it came.

Everything here is a frozen value that travels over the link and into the history store: numbers, closed sets of
words and short engine codes, never text of a prompt or an answer.  Instants are seconds of the relaying process's
monotonic clock, rates are tokens per second (`_tps`), durations seconds (`_s`).  None means "not known" or "does
not apply", never zero.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Dialect(StrEnum):
    """Which API an answer speaks; decides how its events are read."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    MESSAGES = "messages"
    TRANSCRIPTION = "transcription"  # streams like chat; whole answers are text without a reason to end
    OPAQUE = "opaque"  # one JSON value or bytes, never a stream: vectors, scores, token ids


class Ending(StrEnum):
    """How the relay saw the exchange with the backend end."""

    COMPLETE = "complete"  # the HTTP body ended as its framing promised
    EOF = "eof"  # the connection closed before a head or inside the body
    RESET = "reset"
    BAD_FRAMING = "bad_framing"  # not HTTP, or chunk framing that cannot be followed
    NOT_SSE = "not_sse"  # a success status, but not the event stream that was asked for
    OVERSIZE = "oversize"  # one event above the limit of what may be held back
    FIRST_EVENT_TIMEOUT = "first_event_timeout"
    STALL_TIMEOUT = "stall_timeout"
    TOTAL_TIMEOUT = "total_timeout"
    CLIENT_GONE = "client_gone"
    CLIENT_STALLED = "client_stalled"  # it took no bytes for as long as is allowed, and was given up
    SHUTDOWN = "shutdown"  # the gateway ended it on its way out
    REJECTED = "rejected"  # never sent to a backend
    CONNECT_FAILED = "connect_failed"
    BAD_STATUS = "bad_status"  # the backend answered with an error status
    KEY_REFUSED = "key_refused"  # the backend does not accept the gateway's own key


class Outcome(StrEnum):
    """The one word that is recorded for every accepted request."""

    OK = "ok"
    CLIENT_GONE = "client_gone"
    UPSTREAM_ERROR = "upstream_error"
    UPSTREAM_TIMEOUT = "upstream_timeout"
    REJECTED = "rejected"
    SHUTDOWN = "shutdown"


class Exactness(StrEnum):
    """How far a count can be trusted."""

    EXACT = "exact"  # counted by the engine
    ESTIMATED = "estimated"  # from the length of the text; never enters a baseline
    UNKNOWN = "unknown"


class Flag(StrEnum):
    """What a reader of the numbers has to know beside them."""

    ESTIMATED_TOTAL = "estimated_total"  # no usable usage: every count and rate is from text length
    ESTIMATED_SPLIT = "estimated_split"  # the total is exact, reasoning against content is from text length
    # Why there is no split into channels, only a total rate:
    SEVERAL_CHOICES = "several_choices"
    TOOL_CALLS = "tool_calls"
    LOGPROBS = "logprobs"
    TOKEN_IDS = "token_ids"  # noqa: S105  (not a secret)
    # What else bends the numbers or keeps them out of samples:
    REASONING_HIDDEN = "reasoning_hidden"  # counted by the engine, not sent; its silence is in no channel's time
    SEVERAL_TOKENS_PER_CHUNK = "several_tokens_per_chunk"  # chunk gaps are not inter-token latencies
    NO_FINISH_WINDOW = "no_finish_window"  # decode window is first to last token: no events mark its ends
    REPLAYED = "replayed"  # a stored answer that was asked for again: counted and timed when it was made, if at all
    BURST_START = "burst_start"  # much of it came at once with the first token, in no time: rates are too high
    STRUCTURED = "structured"
    CONTINUOUS_USAGE = "continuous_usage"
    BAD_EVENTS = "bad_events"
    OVERSIZE_EVENTS = "oversize_events"
    CLIENT_BLOCKED = "client_blocked"  # the client took bytes slower than they came: the pace is partly its own
    TAP_DISABLED = "tap_disabled"  # the tap failed inside; what it had seen until then is kept


class RequestShape(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the request asked for, as far as it decides what can be measured.

    ``n`` is how many choices the answer must hold (for completions: prompts times n).  ``replay``: it asks for an
    answer that was made before.
    """

    stream: bool
    n: int = 1
    logprobs: bool = False
    token_ids: bool = False
    structured: bool = False
    continuous_usage: bool = False
    replay: bool = False


class EngineMetrics(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The engine's own figures for one request (vLLM's `metrics`, with `--enable-per-request-metrics`).

    Its TTFT starts at scheduling, not at arrival; its tokens_per_second includes prefill and must not be used as a
    rate.  The last three are there with speculative decoding only.
    """

    time_to_first_token_ms: float | None = None
    generation_time_ms: float | None = None
    queue_time_ms: float | None = None
    mean_itl_ms: float | None = None
    tokens_per_second: float | None = None
    mean_acceptance_length: float | None = None
    draft_acceptance_rate: float | None = None
    spec_tokens: int | None = None


class EngineError(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error that the engine sent inside its answer: its code and type as text, never its message.

    ``fatal``: the message is the one with which vLLM's server says that its engine has died.
    """

    code: str | None = None
    type: str | None = None
    fatal: bool = False


class StreamSummary(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that was measured about one answer.

    Instants (None for bodies that are no stream): ``first_event`` any event; ``first_token`` first delta with
    non-empty reasoning, content or tool arguments; ``first_visible`` first non-empty content; ``last_token``;
    ``window_start`` and ``window_end`` bound the decode window.  ``silence_s``: from the last event to the end of the
    stream.  ``chunks`` counts token-bearing events, ``events``
    all events, comments not among them.  ``decode_tps``, ``reasoning_tps``, ``visible_tps``,
    ``effective_visible_tps``, ``step_time_s`` and the chunk gaps are defined in `rates` and `gaps`; ``content_tokens``
    are all tokens that are not reasoning.  ``finish_reasons``: the different reasons in order of arrival.
    ``done_marker``: the endpoint's end marker came (a body has none).  ``terminal``: the engine finished the answer
    itself: a reason for every choice, none of them `abort`, the end marker of a stream, and no error.
    """

    first_event: float | None = None
    first_token: float | None = None
    first_visible: float | None = None
    last_token: float | None = None
    window_start: float | None = None
    window_end: float | None = None
    silence_s: float | None = None

    events: int = 0
    chunks: int = 0
    choices: int = 0
    bad_events: int = 0
    oversize_events: int = 0

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    content_tokens: int | None = None
    total_exactness: Exactness = Exactness.UNKNOWN
    split_exactness: Exactness = Exactness.UNKNOWN

    decode_tps: float | None = None
    reasoning_tps: float | None = None
    visible_tps: float | None = None
    effective_visible_tps: float | None = None
    step_time_s: float | None = None
    reasoning_share: float | None = None
    gap_p50_s: float | None = None
    gap_p99_s: float | None = None
    gap_max_s: float | None = None

    finish_reasons: tuple[str, ...] = ()
    done_marker: bool = False
    terminal: bool = False
    error: EngineError | None = None
    engine: EngineMetrics | None = None
    flags: tuple[Flag, ...] = ()
