"""Keys of clients: who is let in, for what, and that an answer tells nothing of why not."""

from __future__ import annotations

import contextlib
import hmac

import pytest
from msgspec.structs import replace

from gateway.core.admission import keys
from gateway.core.admission.keys import (
    MAX_KEY_CHARS,
    Key,
    KeyScope,
    KeyTable,
    check_model,
    check_scope,
    digest_of,
    no_key,
    presented_key,
    salt_of,
)
from gateway.refusals import InvalidKey, KeyForbidden

SECRET = "pk-of-alice"
ALICE = Key(id="alice", digest=digest_of(SECRET))


def test_a_key_is_found_by_what_was_presented_and_by_nothing_else() -> None:
    table = KeyTable([ALICE, Key(id="bob", digest=digest_of("pk-of-bob"))])
    assert table.find(SECRET, now_wall=0.0) is ALICE
    assert set(table.by_id) == {"alice", "bob"}
    for wrong in ("", "alice", "pk-of-alice ", "PK-OF-ALICE", digest_of(SECRET).hex(), "\udcff"):
        with pytest.raises(InvalidKey):
            table.find(wrong, now_wall=0.0)


def test_unknown_revoked_and_expired_keys_and_none_at_all_are_refused_in_the_same_words() -> None:
    table = KeyTable(
        [
            Key(id="r", digest=digest_of("revoked"), revoked_wall=5.0),
            Key(id="e", digest=digest_of("expired"), expires_wall=10.0),
        ]
    )
    told = {str(no_key())}
    for wrong in ("unknown", "revoked", "expired"):
        with pytest.raises(InvalidKey) as caught:
            table.find(wrong, now_wall=10.0)
        told.add(caught.value.message)
    assert len(told) == 1
    assert table.find("expired", now_wall=9.9).id == "e"


@pytest.mark.parametrize(
    "authorization, api_key, expected",
    [
        (["Bearer pk-1"], [], "pk-1"),
        (["bearer  pk-1 "], [], "pk-1"),
        ([], ["pk-2"], "pk-2"),
        (["Bearer pk-1"], ["pk-2"], "pk-1"),
        (["Basic pk-1"], ["pk-2"], ""),
        (["Bearer pk-1", "Bearer pk-2"], [], ""),
        ([], ["pk-1", "pk-2"], ""),
        (["pk-1"], [], ""),
        ([], [], ""),
        (["Bearer " + "x" * (MAX_KEY_CHARS + 1)], [], ""),
    ],
)
def test_a_key_stands_in_one_header_once(authorization: list[str], api_key: list[str], expected: str) -> None:
    assert presented_key(authorization, api_key) == expected


def test_a_key_is_for_its_scopes_and_models_only() -> None:
    key = replace(ALICE, scopes=(KeyScope.USAGE,), models=("kimi-*", "tiny"))
    check_scope(key, KeyScope.USAGE)
    with pytest.raises(KeyForbidden):
        check_scope(key, KeyScope.INFERENCE)
    check_model(key, ["kimi-k2.5"])
    check_model(key, ["tiny"])
    check_model(key, ["alias", "tiny"])
    for model in ("tiny2", "Kimi-k2.5", "glm", ""):
        with pytest.raises(KeyForbidden):
            check_model(key, [model, model])
    check_model(ALICE, [""])
    check_model(ALICE, ["whatever"])


def test_a_salt_is_the_key_s_own_divides_further_and_leads_not_back() -> None:
    bob = replace(ALICE, id="bob", digest=digest_of("pk-of-bob"))
    salts = {salt_of(key, given=given) for key in (ALICE, bob) for given in ("", "mine")}
    assert len(salts) == 4
    assert salt_of(ALICE, given="") == salt_of(ALICE, given="")
    assert ALICE.digest.hex() not in salts


def test_whatever_is_presented_is_compared_once_and_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    compare = hmac.compare_digest

    def noted(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return compare(one, other)

    monkeypatch.setattr(keys.hmac, "compare_digest", noted)
    table = KeyTable([ALICE, Key(id="r", digest=digest_of("revoked"), revoked_wall=5.0)])
    for presented in (SECRET, "revoked", "unknown", ""):
        with contextlib.suppress(InvalidKey):
            table.find(presented, now_wall=10.0)
    assert [one for one, _ in compared] == [digest_of(it) for it in (SECRET, "revoked", "unknown", "")]
    assert all(len(other) == len(one) for one, other in compared), "a digest in each case, never the key itself"


def test_a_salt_is_the_key_s_own_and_the_same_in_every_process() -> None:
    bob = Key(id="bob", digest=digest_of("pk-of-bob"))
    salts = [salt_of(key, given=given) for key in (ALICE, bob) for given in ("", "mine", "other")]
    assert len(set(salts)) == 6
    assert salts[0] == "9ca645708148e6110ef817af8cefc8e6992b124765bf1133205c847c7acb4540"
    assert all(len(it) == 64 and it.isalnum() for it in salts), (
        "as engines take it: 128 characters at most, none of @/\\"
    )


def test_nobody_reaches_another_key_s_salt_by_a_salt_of_its_own() -> None:
    bob = Key(id="bob", digest=digest_of("pk-of-bob"))
    alice_s = salt_of(ALICE, given="")
    assert alice_s not in {salt_of(bob, given=it) for it in ("", alice_s, "alice", ALICE.digest.hex())}
    assert alice_s not in {digest_of("alice").hex(), ALICE.digest.hex()}, "nor by what is known of a key"
    assert salt_of(replace(ALICE, id="bob"), given="") == alice_s, "of the secret alone, not of the id"
