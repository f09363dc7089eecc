"""Small whole bodies: the list of models, and /tokenize.

Pure.
"""

from __future__ import annotations

import json

from gateway.simulator import extras, refusals
from gateway.simulator.asked import pieces
from gateway.simulator.shapes import quote
from gateway.simulator.spec import ServerSpec


def models_page(spec: ServerSpec, *, now: int, key: str) -> bytes:
    """Return the body of ``GET /v1/models``; ``key`` is the permission's id."""
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
    return quote({"object": "list", "data": [model]})


def token_page(body: bytes, *, max_model_len: int) -> bytes:
    """Return the body of ``POST /tokenize``: made-up ids of estimated tokens.

    Raises:
        Refused: for a body that is no JSON object with a prompt or messages.
    """
    try:
        fields = json.loads(body)
    except ValueError:
        raise refusals.api_error(400, "Bad Request", message="There was an error parsing the body") from None
    if not isinstance(fields, dict):
        raise refusals.invalid(
            "model_attributes_type", "body", message="Input should be a valid dictionary", given=fields
        )
    text = str(fields.get("prompt") or json.dumps(fields.get("messages", "")))
    ids = [extras.token_id(piece) for piece in pieces(text)]
    return quote({"count": len(ids), "max_model_len": max_model_len, "tokens": ids, "token_strs": None})
