"""Small whole bodies: the list of models, /tokenize and /detokenize.

Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType

from gateway.simulator import extras
from gateway.simulator.asked import Limits, check_model, object_of, pieces
from gateway.simulator.fields import Reader
from gateway.simulator.shapes import quote
from gateway.simulator.spec import ServerSpec


def models_page(spec: ServerSpec, *, now: int, key: str, adapters: Mapping[str, str] = MappingProxyType({})) -> bytes:
    """Return the body of ``GET /v1/models``; ``key`` is the permission's id, ``adapters`` name -> path."""
    allowed = {"create_engine": False, "sampling": True, "logprobs": True, "search_indices": False, "view": True}
    permission = {
        "id": f"modelperm-{key}",
        "object": "model_permission",
        "created": now,
        **{f"allow_{name}": value for name, value in allowed.items()},
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    model = {
        "id": spec.model,
        "object": "model",
        "created": now,
        "owned_by": "vllm",
        "root": spec.root,
        "parent": None,
        "max_model_len": spec.max_model_len,
        "permission": [permission],
    }
    tuned = [
        {**model, "id": name, "root": path, "parent": spec.model, "max_model_len": None}
        for name, path in adapters.items()
    ]
    return quote({"object": "list", "data": [model, *tuned]})


def token_page(body: bytes, content_type: bytes, *, limits: Limits) -> bytes:
    """Return the body of ``POST /tokenize``: made-up ids of estimated tokens.

    Raises:
        Refused: for a body that is no JSON object with a prompt or messages, or another model.
    """
    reader = Reader(object_of(body, content_type))
    fields = reader.fields
    if not {"prompt", "messages"} & set(fields):
        reader.required("prompt")
        reader.required("messages")
    reader.raise_faults()
    check_model(fields, limits)
    text = str(fields.get("prompt") or json.dumps(fields.get("messages", "")))
    ids = [extras.token_id(piece) for piece in pieces(text)]
    return quote({"count": len(ids), "max_model_len": limits.max_model_len, "tokens": ids, "token_strs": None})


def text_page(body: bytes, content_type: bytes, *, limits: Limits) -> bytes:
    """Return the body of ``POST /detokenize``: made-up words, one a token.

    Raises:
        Refused: for a body without a list of token numbers, or another model.
    """
    reader = Reader(object_of(body, content_type))
    numbers = reader.elements("tokens") if reader.required("tokens") else []
    single = Reader({str(at): number for at, number in enumerate(numbers)}, place="body.tokens", faults=reader.faults)
    read = [single.integer(name) for name in single.fields]
    for name, number in zip(single.fields, read, strict=True):
        if number is not None and number < 0:
            words = "Input should be greater than or equal to 0"
            single.fault("greater_than_equal", name, message=words, given=number, context={"ge": 0})
    reader.raise_faults()
    check_model(reader.fields, limits)
    return quote({"prompt": "".join(f" w{number}" for number in read)})
