from __future__ import annotations

import json
import re
from typing import Any

from gateway.simulator.answer import Answer
from gateway.simulator.asked import Asked
from gateway.simulator.reply import Manners
from gateway.simulator.request import Channel, Emission, Timing, Token
from gateway.simulator.shapes import Form, Identity

WORD = Token(" w", Channel.CONTENT, 7)
THOUGHT = Token(" t", Channel.REASONING, 8)
MARKER = Token("<think>", Channel.MARKER, 1)
END = Token("", Channel.MARKER, 0)
TIMING = Timing(queued_at=0.0, scheduled_at=1.0, first_token_at=3.0, last_token_at=7.0)


def answer(manners: Manners | None = None, *, form: Form = Form.CHAT, **asked: Any) -> Answer:
    fields = {"form": form, "prompt": "p", "prompt_tokens": 2, "max_tokens": 9, "stream": True} | asked
    identity = Identity(form, "i", 1, "m", "f")
    return Answer(identity, Asked(**fields), manners=manners or Manners(), hexes=lambda digits: "0" * digits)


def feed(
    of: Answer,
    *tokens: Token,
    finish: str | None = None,
    choice: int = 0,
    made: int = 0,
    timing: Timing | None = TIMING,
) -> list[dict[str, Any]]:
    timing = timing if finish else None
    due = of.take(Emission(1, choice, tokens, finish, made or len(tokens), 0, timing))
    data = of.flush(due) if due is not None else b""
    return [json.loads(text) for text in re.findall(rb"data: (\{.*)\n", data)]


def test_the_first_token_brings_the_role_and_a_marker_alone_brings_nothing_else() -> None:
    events = feed(answer(), MARKER)
    assert [event["choices"][0]["delta"] for event in events] == [{"role": "assistant", "content": ""}]


def test_a_token_is_one_event_and_tokens_that_waited_share_one() -> None:
    of = answer()
    feed(of, WORD)
    assert feed(of, WORD, WORD)[0]["choices"][0]["delta"] == {"content": " w w"}


def test_thought_and_content_can_share_an_event() -> None:
    of = answer()
    feed(of, MARKER)
    assert feed(of, THOUGHT, MARKER, WORD)[0]["choices"][0]["delta"] == {"content": " w", "reasoning": " t"}


def test_an_interval_holds_tokens_back_but_neither_the_first_nor_the_last() -> None:
    of = answer(Manners(stream_interval=3))
    assert feed(of, WORD)
    assert feed(of, WORD) == []
    assert feed(of, WORD, finish="length", made=3)[0]["choices"][0]["delta"] == {"content": " w w"}


def test_two_choices_end_the_stream_once() -> None:
    of = answer(n=2, include_usage=True)
    first = feed(of, WORD, finish="length")
    assert not of.is_finished
    last = feed(of, WORD, finish="length", choice=1)
    assert of.is_finished
    assert [len(event["choices"]) for event in [*first, *last]] == [1, 1, 1, 1, 0]
    assert last[-1]["usage"]["completion_tokens"] == 2


def test_nothing_comes_after_the_end() -> None:
    of = answer()
    feed(of, WORD, finish="stop")
    assert feed(of, WORD) == []
    assert of.abort() == b""


def test_an_abort_ends_what_is_open_with_usage() -> None:
    of = answer(include_usage=True)
    feed(of, WORD)
    data = of.abort()
    assert b'"delta":{},"logprobs":null,"finish_reason":"abort"' in data
    assert data.index(b'"usage"') < data.index(b"[DONE]")
    assert data.endswith(b"0\r\n\r\n")


def test_an_abort_before_the_first_token_still_has_a_role_and_a_finish() -> None:
    data = answer().abort()
    assert data.index(b'"role"') < data.index(b'"abort"')


def test_completions_send_text_that_is_empty_too() -> None:
    of = answer(form=Form.COMPLETIONS)
    assert feed(of, Token("", Channel.CONTENT, 5))[0]["choices"][0]["text"] == ""
    assert feed(of, END, finish="stop")[0]["choices"][0]["finish_reason"] == "stop"


def test_a_whole_body_waits_for_every_choice() -> None:
    of = answer(stream=False, n=2)
    assert of.take(Emission(1, 0, (WORD,), "length", 1, 0, TIMING)) is not None
    assert not of.is_finished
    of.take(Emission(1, 1, (THOUGHT, WORD), "length", 2, 1, TIMING))
    body = json.loads(of.whole())
    assert [choice["message"]["content"] for choice in body["choices"]] == [" w", " w"]
    assert body["usage"]["completion_tokens"] == 3


def test_metrics_count_from_scheduling_as_vllm_does() -> None:
    of = answer(Manners(request_metrics=True), include_usage=True)
    metrics = feed(of, WORD, WORD, finish="length")[-1]["metrics"]
    assert metrics["time_to_first_token_ms"] == 2000
    assert metrics["queue_time_ms"] == 1000
    assert metrics["generation_time_ms"] == 4000
    assert metrics["mean_itl_ms"] == 4000
    assert metrics["tokens_per_second"] == 2 / 6


def test_a_broken_stream_says_so_and_ends_properly() -> None:
    data = answer().broken("why")
    assert b'"message": "why"' in data
    assert data.endswith(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


FOUND = Timing(
    queued_at=0.0, scheduled_at=1.0, first_token_at=3.0, last_token_at=7.0, cached_tokens=32, extra_prompt_tokens=100
)


def usage_of(manners: Manners, timing: Timing) -> dict[str, Any]:
    of = answer(manners, include_usage=True)
    usage: dict[str, Any] = feed(of, WORD, finish="length", timing=timing)[-1]["usage"]
    return usage


def test_tokens_that_were_found_in_the_cache_are_told_where_that_is_asked_for_and_there_are_any() -> None:
    told = usage_of(Manners(prompt_details=True), FOUND)
    assert told["prompt_tokens_details"] == {"cached_tokens": 32}
    assert list(told)[:4] == ["prompt_tokens", "total_tokens", "completion_tokens", "prompt_tokens_details"]
    assert "prompt_tokens_details" not in usage_of(Manners(prompt_details=True), TIMING)
    assert "prompt_tokens_details" not in usage_of(Manners(), FOUND)


def test_a_shift_of_context_is_in_the_usage() -> None:
    usage = usage_of(Manners(), FOUND)
    assert (usage["prompt_tokens"], usage["total_tokens"]) == (102, 103)


def test_a_whole_body_has_the_details_too() -> None:
    of = answer(Manners(prompt_details=True), stream=False)
    of.take(Emission(1, 0, (WORD,), "length", 1, 0, FOUND))
    assert json.loads(of.whole())["usage"]["prompt_tokens_details"] == {"cached_tokens": 32}
