"""The section ``parameters``: what requests may ask of the engines.

Not a station.  Names and defaults are those of the policy that workers get (``gateway.core.routing.parameters``), so
the two cannot drift apart.  Defaults are safe where several tenants share the port; each field says why.
"""

from __future__ import annotations

from typing import Final

from pydantic import Field

from gateway.core.routing.parameters import ParameterPolicy
from gateway.settings.section import Section
from gateway.settings.types import Count, CountOrNone, Switch

_DEFAULTS: Final = ParameterPolicy()


class Parameters(Section):
    """What requests may ask of the engines; anything beyond is a 400 that names the field."""

    n: Count = Field(
        _DEFAULTS.n,
        description="The largest `n`: answers to one prompt. Each takes a place in the engine's batch, and vLLM allows 16384.",
    )
    best_of: Count = Field(
        _DEFAULTS.best_of,
        description="The largest `best_of`. vLLM 0.32 ignores it; older engines make so many answers and throw the others "
        "away.",
    )
    max_tokens: CountOrNone = Field(
        _DEFAULTS.max_tokens,
        description="The largest `max_tokens`, `max_completion_tokens`, `max_output_tokens` and `min_tokens`; 0: no cap, "
        "since the model's context bounds an answer anyway. A request that names none may fill the context in any case: "
        "an engine bounds those by `--override-generation-config`.",
    )
    logprobs: CountOrNone = Field(
        _DEFAULTS.logprobs,
        description="The largest `logprobs` and `top_logprobs`: alternatives per token. OpenAI's and vLLM's own limit; -1, "
        "the whole vocabulary, is never allowed.",
    )
    prompt_logprobs: CountOrNone = Field(
        _DEFAULTS.prompt_logprobs,
        description="The largest `prompt_logprobs`; 0 refuses the field, and `echo` with `logprobs`, which means the same. An "
        "engine keeps the scores of every prompt token for it: a long prompt takes gigabytes.",
    )
    priority: Switch = Field(
        _DEFAULTS.priority,
        description="Allow a `priority` other than 0. With priority scheduling a client could put itself before all others.",
    )
    background: Switch = Field(
        _DEFAULTS.background,
        description="Allow `background` responses. vLLM keeps each in memory for ever (`VLLM_ENABLE_RESPONSES_API_STORE`), and "
        "goes on with it when its client has left; what was cancelled cannot be counted.",
    )
    chat_template: Switch = Field(
        _DEFAULTS.chat_template,
        description="Allow a `chat_template` in a request, also inside of `chat_template_kwargs`: a program that the engine runs.",
    )
    processor_kwargs: Switch = Field(
        _DEFAULTS.processor_kwargs,
        description="Allow `mm_processor_kwargs` and `media_io_kwargs`. They reach code that was not written for strangers, and "
        "can make a small image a large one.",
    )
    transfer_params: Switch = Field(
        _DEFAULTS.transfer_params,
        description="Allow `kv_transfer_params` and `ec_transfer_params`, also inside of `vllm_xargs`. They name hosts and cache "
        "blocks of other engines: for a router inside, not for clients.",
    )
    embeds: Switch = Field(
        _DEFAULTS.embeds,
        description="Allow `prompt_embeds` and content parts with embeddings. The engine loads serialised tensors for them.",
    )
    remote_media: Switch = Field(
        _DEFAULTS.remote_media,
        description="Allow images, audio and video by URL. The engine fetches them, from wherever it can reach; with this on, "
        "give it `--allowed-media-domains`. Media inside the request (`data:`) are always allowed.",
    )
    json_depth: Count = Field(
        _DEFAULTS.json_depth,
        description="How deep a body may be nested. Deeper schemas have crashed grammar compilers.",
    )
    json_values: Count = Field(
        _DEFAULTS.json_values,
        description="How many values the JSON of a body may hold, as counted by its commas and brackets. An engine makes an "
        "object of each.",
    )
