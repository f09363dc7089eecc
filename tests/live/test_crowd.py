"""A hundred clients at once: every stream is whole, and nothing is left in flight afterwards."""

import asyncio

import openai

from tests.live.rig.crowd import in_a_loop
from tests.live.rig.engine import Engine
from tests.live.rig.gateway import Gateway
from tests.live.rig.processes import until
from tests.live.rig.ways import Served

CROWD = 100
PROMPTS = ["hello there", "count please", "ponder please", "emoji please"]


async def one_stream(client: openai.AsyncOpenAI, number: int) -> tuple[str, str | None, int]:
    """The text, the finish reason and the token count of one stream."""
    text, finish, tokens = "", None, 0
    stream = await client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": PROMPTS[number % len(PROMPTS)]}],
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    async for chunk in stream:
        if chunk.usage:
            tokens = chunk.usage.completion_tokens
        for choice in chunk.choices:
            text += getattr(choice.delta, "reasoning", None) or choice.delta.content or ""
            finish = choice.finish_reason or finish
    return text, finish, tokens


def test_a_hundred_concurrent_streams_are_all_whole(served: Served, idle: Engine):
    async def crowd() -> list[tuple[str, str | None, int]]:
        async with openai.AsyncOpenAI(base_url=served.base_url, api_key="unused", max_retries=0) as client:
            return await asyncio.gather(*(one_stream(client, number) for number in range(CROWD)))

    before = idle.generated_tokens()
    results = in_a_loop(crowd())

    assert [result for result in results if result[1] != "stop"] == []
    assert all(text for text, _, _ in results)
    assert sum(tokens for _, _, tokens in results) == idle.generated_tokens() - before


def test_nothing_is_in_flight_after_the_crowd(gateway: Gateway, idle: Engine):
    until(lambda: gateway.in_flight() == 0, "no request in flight", within_s=3)
    (backend,) = gateway.admin("/admin/v1/backends")["items"]

    assert backend["in_flight"] == 0
