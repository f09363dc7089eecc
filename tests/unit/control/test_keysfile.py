"""The file of keys as control owns it: read when it changes, kept when it is damaged, rewritten in one move."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from gateway.control import inbox
from gateway.control.clients import Clients
from gateway.control.keysfile import KeysFile, replace_file, signature
from gateway.core.admission.keys import Key, KeyTable, digest_of
from gateway.errors import BadRequest, ConfigError, NotFound, StoreUnusable
from gateway.settings.keys import read_keys, write_keys

pytestmark = pytest.mark.asyncio

NOW = 1_800_000_000.5


class Desk:
    """The file with the loop's part: keys in use, and every event."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "keys" / "keys.json"
        self.clients = Clients(keys=())
        self.events: list[inbox.Event] = []
        self.file = KeysFile(self.path, wall=lambda: NOW)
        self.file.follow(self.clients)
        self.file.post = self.post

    def post(self, event: inbox.Event) -> None:
        self.events.append(event)
        if isinstance(event, inbox.KeysRead):
            list(self.clients.replace(event.keys))

    def write(self, *keys: Key, mode: int = 0o600) -> None:
        replace_file(self.path, write_keys(keys))
        self.path.chmod(mode)


def key(key_id: str) -> Key:
    return Key(id=key_id, digest=digest_of(key_id))


async def test_the_first_key_makes_the_file_private_to_us_and_is_shown_once(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    made = await desk.file.create(Key(id="", digest=b"", name="alice"))
    assert made.key.startswith("pk-")
    assert len(made.key) >= 40
    assert made.made.id.startswith("k-")
    assert made.made.created_wall == 1_800_000_000
    assert KeyTable(desk.file.all()).find(made.key, now_wall=NOW) == made.made
    assert stat.S_IMODE(desk.path.stat().st_mode) == 0o600
    assert made.key not in desk.path.read_text()
    assert read_keys(desk.path) == (made.made,)
    assert list(desk.path.parent.iterdir()) == [desk.path], "nothing half-written is left"


async def test_keys_are_added_to_what_the_file_says_now_and_revoked_ones_stay_in_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await desk.file.create(Key(id="a", digest=b""))
    by_hand = (*read_keys(desk.path), key("by-hand"))
    desk.write(*by_hand)
    await desk.file.create(Key(id="b", digest=b""))
    assert [it.id for it in desk.file.all()] == ["a", "by-hand", "b"]
    ended = await desk.file.revoke("a")
    assert ended.revoked_wall == 1_800_000_000
    assert (await desk.file.revoke("a")).revoked_wall == 1_800_000_000
    assert [it.id for it in read_keys(desk.path) if not it.is_good(NOW)] == ["a"]
    with pytest.raises(BadRequest):
        await desk.file.create(Key(id="a", digest=b""))
    with pytest.raises(NotFound):
        await desk.file.revoke("nobody")


async def test_a_damaged_or_vanished_file_is_never_overwritten(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await desk.file.create(Key(id="a", digest=b""))
    desk.path.write_text("keys: [")
    for change in (desk.file.create(Key(id="b", digest=b"")), desk.file.revoke("a")):
        with pytest.raises(ConfigError):
            await change
    assert desk.path.read_text() == "keys: ["
    desk.path.unlink()
    with pytest.raises(ConfigError, match="gone"):
        await desk.file.create(Key(id="b", digest=b""))
    assert not desk.path.exists()
    assert [it.id for it in desk.file.all()] == ["a"]


async def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("a file where a folder should be")
    with pytest.raises(StoreUnusable):
        await Desk(tmp_path).file.create(Key(id="a", digest=b""))


async def test_a_reload_tells_the_keys_or_every_fault(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await desk.file.reload()
    assert desk.events == [], "no file, and no key was ever made"
    desk.write(key("a"))
    await desk.file.reload()
    assert desk.events == [inbox.KeysRead((key("a"),))]
    desk.write(key("a"), mode=0o644)
    await desk.file.reload()
    bad = desk.events[-1]
    assert isinstance(bad, inbox.KeysBad)
    assert "chmod 0600" in bad.faults[0]
    desk.path.unlink()
    await desk.file.reload()
    assert isinstance(desk.events[-1], inbox.KeysBad)


async def test_at_the_start_the_file_counts_and_where_it_is_damaged_what_was_kept(tmp_path: Path) -> None:
    desk, kept = Desk(tmp_path), write_keys([key("kept")]).decode()
    assert desk.file.first("") == ()
    assert [it.id for it in desk.file.first(kept)] == ["kept"], "it vanished between two lives"
    desk.write(key("a"))
    assert [it.id for it in desk.file.first(kept)] == ["a"]
    desk.path.write_text("{")
    assert [it.id for it in desk.file.first(kept)] == ["kept"]
    with pytest.raises(ConfigError):
        desk.file.first("")


async def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.json").touch()
    (tmp_path / "link.json").symlink_to("real.json")
    replace_file(tmp_path / "link.json", b"{}")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "real.json").read_bytes() == b"{}"
    assert signature(tmp_path / "nowhere") is None
