from collections.abc import Sequence

import pytest
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from gateway.admin.access import Gate
from gateway.admin.origins import Origins
from gateway.admin.tokens import Scope, Token, TokenTable, digest_of
from gateway.core.admission.throttle import Throttle
from gateway.errors import GatewayError, NotAllowed, NotAuthenticated, TooManyAttempts

HOST = ("Host", "127.0.0.1:8081")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def gate(clock: Clock) -> Gate:
    tokens = [
        Token(name=scope.word, scope=scope, digest=digest_of(f"token-{scope.word}"))
        for scope in (Scope.READ, Scope.OPERATE, Scope.ADMIN)
    ]
    throttle = Throttle(3, 10.0, peers=8)
    return Gate(TokenTable(tokens), Origins(["127.0.0.1:8081"]), throttle=throttle, clock=clock)


def request(*headers: tuple[str, str]):
    return make_mocked_request("GET", "/", headers=CIMultiDict(headers))


def bearing(token: str, *, scheme: str = "Bearer") -> tuple[str, str]:
    return ("Authorization", f"{scheme} {token}")


@pytest.mark.parametrize("held", [Scope.READ, Scope.OPERATE, Scope.ADMIN])
@pytest.mark.parametrize("needed", [Scope.READ, Scope.OPERATE, Scope.ADMIN])
def test_a_token_allows_its_scope_and_those_below(gate: Gate, held: Scope, needed: Scope) -> None:
    asked = request(HOST, bearing(f"token-{held.word}"))
    if held >= needed:
        caller = gate.admit(asked, needed)
        assert (caller.name, caller.scope) == (held.word, held)
    else:
        with pytest.raises(NotAllowed, match=f"scope {needed.word}, {held.word} has {held.word}"):
            gate.admit(asked, needed)


def test_an_open_route_takes_no_token_but_our_own_host(gate: Gate) -> None:
    assert gate.admit(request(HOST), Scope.OPEN).name == ""
    with pytest.raises(NotAllowed, match="Host"):
        gate.admit(request(("Host", "evil.example")), Scope.OPEN)


@pytest.mark.parametrize(
    "headers",
    [
        [("Host", "evil.example")],
        [],
        [HOST, HOST],
        [HOST, ("Origin", "http://evil.example")],
        [HOST, ("Origin", "http://127.0.0.1:8081"), ("Origin", "http://127.0.0.1:8081")],
    ],
    ids=str,
)
def test_a_foreign_host_or_origin_is_refused_even_with_the_right_token(
    gate: Gate, headers: Sequence[tuple[str, str]]
) -> None:
    with pytest.raises(NotAllowed, match=r"Host|Origin"):
        gate.admit(request(*headers, bearing("token-admin")), Scope.READ)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("Authorization", "")],
        [("Authorization", "Bearer")],
        [("Authorization", "Bearer ")],
        [bearing("token-admin", scheme="Basic")],
        [("Authorization", "token-admin")],
        [bearing("token-admin"), bearing("token-admin")],
        [bearing("wrong")],
        [bearing("token-admin-and-more")],
    ],
    ids=str,
)
def test_no_token_and_a_wrong_one_get_the_same_answer(gate: Gate, headers: Sequence[tuple[str, str]]) -> None:
    with pytest.raises(NotAuthenticated) as caught:
        gate.admit(request(HOST, *headers), Scope.READ)
    with pytest.raises(NotAuthenticated) as without:
        gate.admit(request(HOST), Scope.READ)
    assert caught.value.message == without.value.message


def test_the_scheme_is_read_in_any_case(gate: Gate) -> None:
    assert gate.admit(request(HOST, bearing("token-read", scheme="bEARER")), Scope.READ).name == "read"


def test_wrong_tokens_run_out_and_then_even_the_right_one_has_to_wait(gate: Gate, clock: Clock) -> None:
    answers: list[type[GatewayError]] = []
    for _ in range(5):
        with pytest.raises(GatewayError) as caught:
            gate.admit(request(HOST, bearing("wrong")), Scope.READ)
        answers.append(type(caught.value))
    assert answers == [NotAuthenticated] * 3 + [TooManyAttempts] * 2
    with pytest.raises(TooManyAttempts) as right:
        gate.admit(request(HOST, bearing("token-admin")), Scope.READ)
    assert (right.value.message, right.value.retry_after_s) == (caught.value.message, 10.0)
    clock.now = 10.0
    assert gate.admit(request(HOST, bearing("token-admin")), Scope.READ).name == "admin"


def test_asking_without_a_token_or_for_too_much_is_no_guess(gate: Gate) -> None:
    for _ in range(10):
        with pytest.raises(NotAuthenticated):
            gate.admit(request(HOST), Scope.READ)
        with pytest.raises(NotAllowed):
            gate.admit(request(HOST, bearing("token-read")), Scope.ADMIN)
    assert gate.admit(request(HOST, bearing("token-read")), Scope.READ).name == "read"
