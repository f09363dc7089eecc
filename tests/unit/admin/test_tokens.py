import os
import stat
from pathlib import Path

import pytest

from gateway.admin.tokens import TOKEN_FILE, Scope, Token, TokenTable, digest_of, load_or_make_token
from gateway.errors import RuntimeDirUnusable


def token_text(folder: Path) -> str:
    return (folder / TOKEN_FILE).read_text(encoding="ascii").strip()


def put(folder: Path, content: str | bytes, *, mode: int = 0o600) -> None:
    path = folder / TOKEN_FILE
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)


def test_the_first_start_makes_a_token_for_us_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        token = load_or_make_token(tmp_path)
    finally:
        os.umask(old)
    status = (tmp_path / TOKEN_FILE).stat()
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert len(token_text(tmp_path)) >= 43, "256 bits"
    assert token == Token(name=TOKEN_FILE, scope=Scope.ADMIN, digest=digest_of(token_text(tmp_path)))
    assert [path.name for path in tmp_path.iterdir()] == [TOKEN_FILE]


def test_later_starts_read_the_same_token_again(tmp_path: Path) -> None:
    first = load_or_make_token(tmp_path)
    assert load_or_make_token(tmp_path) == first


def test_two_installations_have_two_tokens(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    assert load_or_make_token(folders[0]).digest != load_or_make_token(folders[1]).digest


def test_of_two_that_start_at_once_both_get_the_token_that_was_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "x" * 43 + "\n")
    monkeypatch.setattr(os.path, "lexists", lambda _path: False)
    assert load_or_make_token(tmp_path).digest == digest_of("x" * 43)
    assert [path.name for path in tmp_path.iterdir()] == [TOKEN_FILE]


def test_what_a_crash_left_beside_it_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / f"{TOKEN_FILE}.{os.getpid()}.new").write_text("half")
    load_or_make_token(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [TOKEN_FILE]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o601])
def test_a_file_that_others_may_touch_is_refused(tmp_path: Path, mode: int) -> None:
    put(tmp_path, "x" * 43, mode=mode)
    with pytest.raises(RuntimeDirUnusable, match=rf"admin\.token: open to others \(mode {mode:04o}\).*remove it"):
        load_or_make_token(tmp_path)


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "x" * 43)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(RuntimeDirUnusable, match=f"belongs to another user \\(uid {owner}\\)"):
        load_or_make_token(tmp_path)


@pytest.mark.parametrize(
    "content", ["", "\n", "short", "x" * 40 + " y", "x" * 40 + "\ny", "x" * 600, b"\xff" * 43], ids=repr
)
def test_a_file_without_a_token_is_refused(tmp_path: Path, content: str | bytes) -> None:
    put(tmp_path, content)
    with pytest.raises(RuntimeDirUnusable, match="holds no token; remove it"):
        load_or_make_token(tmp_path)


@pytest.mark.parametrize("kind", ["link", "dangling", "folder", "pipe"])
def test_only_a_regular_file_is_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / TOKEN_FILE
    match kind:
        case "link":
            put(tmp_path, "x" * 43)
            path.rename(tmp_path / "elsewhere")
            path.symlink_to(tmp_path / "elsewhere")
        case "dangling":
            path.symlink_to(tmp_path / "elsewhere")
        case "folder":
            path.mkdir()
        case _:
            os.mkfifo(path, 0o600)
    with pytest.raises(RuntimeDirUnusable, match=r"admin\.token: "):
        load_or_make_token(tmp_path)


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(RuntimeDirUnusable, match="No such file or directory"):
        load_or_make_token(tmp_path / "missing")


def test_a_table_knows_its_tokens_and_no_others() -> None:
    tokens = [Token(name=name, scope=Scope.READ, digest=digest_of(f"secret-{name}")) for name in "ab"]
    table = TokenTable(tokens)
    assert [table.find(f"secret-{name}") for name in "ab"] == tokens
    for wrong in ("", "secret-c", "secret-a ", "Secret-a", "secret-\udcff"):
        assert table.find(wrong) is None
    assert TokenTable([]).find("secret-a") is None


def test_the_table_holds_no_token_in_the_clear() -> None:
    assert "secret" not in repr(TokenTable([Token(name="n", scope=Scope.READ, digest=digest_of("secret"))])._tokens)


def test_each_scope_includes_those_below() -> None:
    assert Scope.OPEN < Scope.READ < Scope.OPERATE < Scope.ADMIN
    assert [scope.word for scope in Scope] == ["open", "read", "operate", "admin"]
