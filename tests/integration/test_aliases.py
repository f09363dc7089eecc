"""A model under another name: clients use it, engines never hear it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.errors import ConfigError
from tests.fakes.backend import Script, answer
from tests.fakes.client import raw_client
from tests.fakes.setting_stage import Stage

OK = Script((answer(b'{"model":"tiny","choices":[{"index":0,"finish_reason":"stop","message":{}}]}'),))
ALIASES = {"pools[].aliases": [{"name": "gpt-4o", "model": "tiny"}]}


@pytest.mark.asyncio
async def test_an_alias_goes_upstream_as_the_model_and_is_listed_beside_it(tmp_path: Path) -> None:
    async with Stage(tmp_path, ALIASES).flow() as (backend, worker), raw_client(worker.port) as client:
        backend.add(OK, OK)
        for name in ("gpt-4o", "tiny"):
            await client.post({"model": name, "temperature": 0.5, "messages": []})
            seen = await client.answer()
            assert (seen.status, json.loads(seen.body)["model"]) == (200, "tiny")
        sent = [json.loads((await backend.exchange(at)).request.body) for at in range(2)]
        assert sent == [{"model": "tiny", "temperature": 0.5, "messages": []}] * 2
        assert [record.model for record in (await worker.record(0), await worker.record(1))] == ["tiny", "tiny"]
        await client.send(b"GET /v1/models HTTP/1.1\r\nHost: g\r\n\r\n")
        assert [card["id"] for card in json.loads((await client.answer()).body)["data"]] == ["tiny", "gpt-4o"]


@pytest.mark.asyncio
async def test_an_alias_of_a_model_that_nobody_serves_is_not_listed_and_404(tmp_path: Path) -> None:
    given = {"pools[].aliases": [{"name": "gpt-4o", "model": "gone"}]}
    async with Stage(tmp_path, given).flow() as (_, worker), raw_client(worker.port) as client:
        await client.post({"model": "gpt-4o", "messages": []})
        assert (await client.answer()).status == 404
        await client.send(b"GET /v1/models HTTP/1.1\r\nHost: g\r\n\r\n")
        assert [card["id"] for card in json.loads((await client.answer()).body)["data"]] == ["tiny"]


@pytest.mark.parametrize(
    "aliases, words",
    [
        ([{"name": "m", "model": "tiny"}], "the same model as"),
        ([{"name": "x", "model": "m"}, {"name": "x", "model": "m"}], "the same model as"),
        ([{"name": "x", "model": "other"}], "not among the pool's models"),
    ],
)
def test_aliases_that_make_no_sense_are_refused(tmp_path: Path, aliases: list[dict[str, str]], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Stage(tmp_path, {"pools[].aliases": aliases, "pools[].models": ["m"]}).settings()
