"""What the machine must have: keys in the environment, certificates that can be read."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from gateway.errors import ConfigError
from gateway.settings import parse


def faults(line: str, **environ: str) -> list[str]:
    text = f"pools: [{{name: p, backends: [{{name: a, {line}}}]}}]"
    try:
        parse(text, "f.yaml", environ=environ)
    except ConfigError as error:
        return [fault.split(": ", 1)[1] for fault in error.message.splitlines()]
    return []


KEYED = 'url: "http://x", api_key_env: VLLM_KEY'


def test_a_key_that_is_there_is_good() -> None:
    assert faults(KEYED, VLLM_KEY="sk-x") == []


@pytest.mark.parametrize(
    "environ, says",
    [
        ({}, "the environment variable VLLM_KEY is not set"),
        ({"VLLM_KEY": ""}, "the environment variable VLLM_KEY is empty"),
        ({"VLLM_KEY": "sk-x\n"}, "the value of VLLM_KEY cannot stand in a header (a line break or blank at its end?)"),
        (
            {"VLLM_KEY": "schlüssel"},
            "the value of VLLM_KEY cannot stand in a header (a line break or blank at its end?)",
        ),
    ],
)
def test_a_key_that_cannot_be_sent_is_a_fault(environ: dict[str, str], says: str) -> None:
    assert faults(KEYED, **environ) == [says]


def test_a_missing_key_does_not_matter_to_who_only_asks_for_the_settings() -> None:
    text = f"pools: [{{name: p, backends: [{{name: a, {KEYED}}}]}}]"
    assert parse(text, "f.yaml", environ={}, look_at_host=False).runtime.pools[0].backends[0].api_key_env == "VLLM_KEY"


def test_a_certificate_file_must_be_there_and_hold_one(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing\n")
    assert faults(f'url: "https://x", tls_ca: "{empty}"') == [f"{empty} holds no certificate in PEM form"]
    assert faults(f'url: "https://x", tls_ca: "{tmp_path}/gone.pem"') == [
        f"cannot read {tmp_path}/gone.pem: no such file or directory"
    ]


def test_a_good_certificate_file_is_taken(tmp_path: Path) -> None:
    bundle = ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt"
    if not Path(bundle).is_file():
        pytest.skip(f"this machine has no certificates at {bundle}")
    assert faults(f'url: "https://x", tls_ca: "{bundle}"') == []
