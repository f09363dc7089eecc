"""The file of keys: what it may say, every fault with its place, and that what is written is read as it was."""

from __future__ import annotations

import os
import re
from pathlib import Path
from textwrap import dedent

import pytest

from gateway.core.admission.keys import Key, KeyDefaults, KeyLimits, KeyScope, digest_of
from gateway.core.stream.delivery.mode import Delivery
from gateway.errors import ConfigError
from gateway.settings.keys import KeysFile, moment_of, parse_keys, read_keys, write_keys
from gateway.settings.section import walk
from tests.meta.source_tree import ROOT

DIGEST = digest_of("pk-x").hex()


def faults(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_keys(dedent(text), "k.yaml")
    return caught.value.message.splitlines()


def test_a_key_needs_an_id_and_a_digest_and_the_rest_has_defaults() -> None:
    (key,) = parse_keys(f"keys:\n  - {{id: a, digest: {DIGEST}}}\n", "k.yaml")
    assert key == Key(id="a", digest=digest_of("pk-x"))
    assert parse_keys("", "k.yaml") == parse_keys("keys: []\n", "k.yaml") == ()


def test_everything_that_a_key_can_have() -> None:
    text = f"""\
    keys:
      - id: batch   # nightly
        digest: "sha256:{DIGEST}"
        name: nightly batch
        scopes: [inference]
        models: ["kimi-*", tiny]
        limits: {{concurrency: 4, requests_per_minute: 60, tokens_per_minute: 5000, tokens_per_day: 100000, queue_share: 0.5}}
        priority: {{lowest: 10, highest: 50}}
        weight: 0.5
        defaults: {{priority: 20, reasoning: drop, metrics: usage, comments: true}}
        cache_salt: true
        created: 2026-12-01T10:00:00Z
        expires: "2027-01-31T12:00:00+01:00"
        revoked: 2026-12-24
    """
    (key,) = parse_keys(dedent(text), "k.yaml")
    assert key == Key(
        id="batch",
        digest=digest_of("pk-x"),
        name="nightly batch",
        scopes=(KeyScope.INFERENCE,),
        models=("kimi-*", "tiny"),
        limits=KeyLimits(
            concurrency=4, requests_per_minute=60, tokens_per_minute=5000, tokens_per_day=100_000, queue_share=0.5
        ),
        priority_min=10,
        priority_max=50,
        weight=0.5,
        defaults=KeyDefaults(priority=20, reasoning=Delivery.DROP, metrics="usage", comments=True),
        cache_salt=True,
        created_wall=1796119200.0,
        expires_wall=1801393200.0,
        revoked_wall=1798070400.0,
    )
    assert parse_keys(write_keys([key]).decode(), "k.json") == (key,)
    assert moment_of(1796119200.9) == "2026-12-01T10:00:00Z"


def test_every_fault_comes_in_one_go_with_its_place_and_without_the_value() -> None:
    text = f"""\
    keys:
      - {{id: a, digest: pk-the-key-itself}}
      - {{id: "b c", digest: {DIGEST}}}
      - {{id: d, digst: x}}
      - {{id: e, digest: {"0" * 64}, limits: {{rpm: 3, concurrency: 0}}, scopes: [admin], weight: 0}}
      - {{id: f, digest: {"1" * 64}, models: [], expires: soon}}
      - {{id: g, digest: {"2" * 64}, priority: {{lowest: 5}}}}
    """
    assert [re.sub(r"^(k.yaml:\d+):\d+", r"\1", line) for line in faults(text)] == [
        "k.yaml:2 keys[0].digest: must be the SHA-256 of the key in 64 hexadecimal digits, never the key itself",
        "k.yaml:3 keys[1].id: must be 1 to 64 letters, digits, dots, dashes or underscores, the first a letter or digit",
        "k.yaml:4 keys[2].digest: required, but not there",
        'k.yaml:4 keys[2].digst: unknown key; did you mean "digest"?',
        (
            "k.yaml:5 keys[3].limits.rpm: unknown key; known here: concurrency, requests_per_minute, tokens_per_minute, "
            "tokens_per_day, queue_share"
        ),
        "k.yaml:5 keys[3].limits.concurrency: must be at least 1",
        'k.yaml:5 keys[3].scopes[0]: must be "inference" or "usage"',
        "k.yaml:5 keys[3].weight: must be at least 0.01",
        'k.yaml:6 keys[4].models: needs at least one name or pattern; "*" is every model',
        'k.yaml:6 keys[4].expires: must be a time such as "2027-01-31T12:00:00Z"',
        "k.yaml:7 keys[5]: defaults.priority must lie from priority.lowest to priority.highest",
    ]


def test_an_id_or_a_digest_that_stands_twice_is_a_fault() -> None:
    twice = [Key(id="a", digest=b"1" * 32), Key(id="a", digest=b"2" * 32), Key(id="b", digest=b"1" * 32)]
    with pytest.raises(ConfigError, match="the same id as") as caught:
        parse_keys(write_keys(twice).decode(), "k.json")
    assert "the same digest as keys[0]" in caught.value.message


@pytest.mark.parametrize("text", ["[", "keys: {", '{"keys": [', "keys: 3", "- a", "keys:\n\t- a"])
def test_what_is_no_file_of_keys_is_refused(text: str) -> None:
    assert faults(text)


def test_thousands_of_keys_are_read_as_they_were_written() -> None:
    keys = tuple(Key(id=f"k{at}", digest=digest_of(str(at)), limits=KeyLimits(concurrency=1)) for at in range(3000))
    assert parse_keys(write_keys(keys).decode(), "k.json") == keys


def test_a_file_that_others_can_read_or_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(write_keys([Key(id="a", digest=b"1" * 32)]))
    path.chmod(0o600)
    assert [key.id for key in read_keys(path)] == ["a"]
    for mode in (0o640, 0o604, 0o620):
        path.chmod(mode)
        with pytest.raises(ConfigError, match="chmod 0600"):
            read_keys(path)
    with pytest.raises(ConfigError, match="not a regular file"):
        read_keys(Path(os.devnull))
    with pytest.raises(ConfigError, match="no such file"):
        read_keys(tmp_path / "nowhere")
    path.chmod(0o600)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_keys(path)


@pytest.mark.parametrize("text", [b"", b"\n \n", b"\0" * 512], ids=["nothing", "blank", "zeros"])
def test_a_file_that_was_cut_to_nothing_takes_no_key_away(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="is empty"):
        read_keys(path)
    path.write_bytes(b"keys: []\n")
    assert read_keys(path) == ()


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    """Nobody writes to it: who opened it to read would wait for ever, and no change would be seen any more."""
    os.mkfifo(tmp_path / "keys", 0o600)
    with pytest.raises(ConfigError, match="not a regular file"):
        read_keys(tmp_path / "keys")


def test_every_field_of_the_file_stands_on_its_page() -> None:
    page = (ROOT / "docs" / "keys.md").read_text(encoding="utf-8")
    names = [path.rpartition(".")[2] for path, child in walk(KeysFile) if child.section is None]
    assert len(names) > 15
    assert [name for name in names if f"`{name}`" not in page] == []
