"""Which gateway, which token: options, environment, file, defaults."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.cli.exits import CommandFailed, Exit
from gateway.cli.target import Options, Token, config_file, find
from gateway.errors import ConfigError

POOLS = 'pools: [{name: p, backends: [{name: a, url: "http://127.0.0.1:1", api_key_env: NOT_IN_THIS_SHELL}]}]\n'


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def config(text: str = "") -> Path:
    path = Path("g.yaml")
    path.write_text(POOLS + text)
    return path


def test_the_configuration_says_where_and_which_token(tmp_path: Path) -> None:
    path = config('operators: {listen: ["127.0.0.1:9", "127.0.0.1:10"]}\nruntime_dir: run\n')
    target = find(Options(config=path), {})
    assert target.url == "http://127.0.0.1:9"
    assert target.token.path == tmp_path / "run" / "admin.token"


@pytest.mark.parametrize(
    "listen, url",
    [
        ("0.0.0.0:9", "http://127.0.0.1:9"),
        ("[::]:9", "http://[::1]:9"),
        ("[::1]:9", "http://[::1]:9"),
        ("unix:/x", "unix:/x"),
        ("10.0.0.1:9", "http://10.0.0.1:9"),
    ],
)
def test_a_listen_address_is_turned_into_one_to_reach(listen: str, url: str) -> None:
    assert find(Options(config=config(f'operators: {{listen: ["{listen}"]}}\n')), {}).url == url


def test_the_environment_wins_over_the_file() -> None:
    target = find(Options(config=config()), {"PACEKEEPER_OPERATORS__LISTEN": "127.0.0.1:9", "PACEKEEPER_TOKEN": "abc"})
    assert (target.url, target.token.read()) == ("http://127.0.0.1:9", "abc")


def test_options_win_over_everything_and_need_no_file() -> None:
    Path("token").write_text("from-file\n")
    options = Options(config=Path("gone.yaml"), operators="http://h:1", token_file=Path("token"))
    target = find(options, {"PACEKEEPER_TOKEN": "abc", "PACEKEEPER_TOKEN_FILE": "gone"})
    assert (target.url, target.token.read()) == ("http://h:1", "from-file")


def test_the_token_itself_wins_over_a_token_file_in_the_environment() -> None:
    environ = {"PACEKEEPER_TOKEN": "abc", "PACEKEEPER_TOKEN_FILE": "gone"}
    assert find(Options(operators="http://h:1"), environ).token == Token(value="abc", path=Path("gone"))
    assert find(Options(operators="http://h:1"), {"PACEKEEPER_TOKEN_FILE": "t"}).token == Token(path=Path("t"))


def test_without_any_file_the_defaults_hold(tmp_path: Path) -> None:
    target = find(Options(), {})
    assert target.url == "http://127.0.0.1:8081"
    assert target.token.path == tmp_path / "var/run/admin.token"


def test_the_usual_place_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "gateway.yaml").write_text(POOLS + 'operators: {listen: ["127.0.0.1:9"]}\n')
    assert config_file(Options()) == Path("config/gateway.yaml")
    assert find(Options(), {}).url == "http://127.0.0.1:9"


def test_options_after_the_command_win_over_those_before_it() -> None:
    before = Options(config=Path("a"), operators="http://a:1")
    after = Options(operators="http://b:1", token_file=Path("t"))
    assert after.over(before) == Options(config=Path("a"), operators="http://b:1", token_file=Path("t"))


def test_a_bad_file_and_a_bad_url_are_faults() -> None:
    with pytest.raises(ConfigError, match="unknown key"):
        find(Options(config=config("worker: 2\n")), {})
    with pytest.raises(CommandFailed, match="--operators: must be") as caught:
        find(Options(operators="127.0.0.1:8081"), {"PACEKEEPER_TOKEN": "x"})
    assert caught.value.exit_code is Exit.USAGE


@pytest.mark.parametrize(
    "content, code",
    [(None, "no_token"), (b"", "bad_token"), (b"two words", "bad_token"), ("schlüssel".encode(), "token_unreadable")],
)
def test_a_token_that_is_none_is_not_sent(content: bytes | None, code: str, tmp_path: Path) -> None:
    path = tmp_path / "admin.token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CommandFailed) as caught:
        Token(path=path).read()
    assert (caught.value.code, caught.value.exit_code) == (code, Exit.NOT_AUTHORISED)
    assert str(content) not in caught.value.message


def test_a_token_file_that_may_not_be_read_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> bytes:
        raise PermissionError

    monkeypatch.setattr(Path, "read_bytes", refuse)  # the tests may run as root, who may read everything
    with pytest.raises(CommandFailed, match="may not read the token at") as caught:
        Token(path=tmp_path / "t").read()
    assert "user that the gateway runs as" in caught.value.hint


@pytest.mark.parametrize(
    "options, said",
    [
        (Options(), "no configuration file was given or found"),
        (Options(config=Path("g.yaml")), "this is the place by g.yaml"),
        (Options(token_file=Path("gone")), "--token-file or PACEKEEPER_TOKEN_FILE names"),
    ],
)
def test_the_hint_where_there_is_no_token_says_why_it_was_looked_for_there(options: Options, said: str) -> None:
    config()
    with pytest.raises(CommandFailed, match="no token at") as caught:
        find(options, {}).token.read()
    assert said in caught.value.hint
