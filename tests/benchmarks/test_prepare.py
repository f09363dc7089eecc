"""How packages are put into parts to carry, and what is noted of peers that are not there."""

from pathlib import Path

import pytest

from benchmarks import peers, prepare


def test_parts_hold_everything_once_and_none_is_larger_than_allowed() -> None:
    sizes = {"a": 30, "b": 20, "c": 15, "d": 5, "e": 1}
    found = prepare.parts(sizes, most=40)
    assert sorted(name for part in found for name in part) == sorted(sizes)
    assert all(sum(sizes[name] for name in part) <= 40 for part in found)
    assert len(found) == 2


def test_what_is_larger_than_a_part_has_one_to_itself() -> None:
    assert prepare.parts({"big": 50, "small": 1}, most=40) == [["big"], ["small"]]


def test_every_peer_is_pinned_by_a_version_or_is_debian_s() -> None:
    for peer in peers.PEERS:
        assert ("==" in peer.requirement) is not bool(peer.debian), peer.name


def test_the_reason_why_a_peer_is_missing_is_kept_until_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "FOLDER", tmp_path)
    assert peers.missing("smg") == "not installed; run: python -m benchmarks prepare"
    peers.note_missing("smg", "no\nwheel  for this machine")
    assert peers.missing("smg") == "no wheel for this machine"
    (tmp_path / "smg").mkdir()
    peers.note_prepared("smg", peers.peer("smg").pin)
    assert peers.missing("smg") is None
    peers.note_prepared("smg", "smg==0.0.1")
    assert peers.missing("smg") is not None, "another version is not this peer"
