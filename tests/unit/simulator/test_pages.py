from __future__ import annotations

import json

import pytest

from gateway.simulator.asked import Limits
from gateway.simulator.pages import text_page, token_page
from gateway.simulator.refusals import Refused

LIMITS = Limits(model="m", max_model_len=100)


def test_detokenizing_gives_one_word_a_token() -> None:
    page = text_page(b'{"tokens": [3, 4]}', b"application/json", limits=LIMITS)
    assert len(json.loads(page)["prompt"].split()) == 2


def test_tokenizing_needs_a_prompt_or_messages() -> None:
    assert json.loads(token_page(b'{"prompt": "a b"}', b"application/json", limits=LIMITS))["count"] == 2
    with pytest.raises(Refused) as caught:
        token_page(b"{}", b"application/json", limits=LIMITS)
    assert b"2 validation errors" in caught.value.body
