"""What a request may ask of an engine: the parameter policy, as data.

Travels in the snapshot; checked by ``core/request/parameters.py`` at admit.  Defaults are safe for a port that several
tenants share; the settings say why, one by one.  Must not decide anything.
"""

from __future__ import annotations

from msgspec import Struct


class ParameterPolicy(Struct, frozen=True, kw_only=True):
    """Caps (numbers, inclusive) and gates (True: allowed).

    ``max_tokens`` 0: no cap; ``prompt_logprobs`` 0: refused.  ``logprobs`` is for ``logprobs`` and ``top_logprobs``,
    ``max_tokens`` for the field under each of its names, ``embeds`` for tensors in a field or a content part.
    """

    n: int = 16
    best_of: int = 16
    max_tokens: int = 0
    logprobs: int = 20
    prompt_logprobs: int = 0
    priority: bool = False
    background: bool = False
    chat_template: bool = False
    processor_kwargs: bool = False
    transfer_params: bool = False
    embeds: bool = False
    remote_media: bool = False
    json_depth: int = 64
    json_values: int = 1_000_000
