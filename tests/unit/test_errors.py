"""The tree of errors: every class has its own code and the drawing names it."""

from __future__ import annotations

from gateway import errors
from gateway.errors import Fault, GatewayError


def _all(kind: type[GatewayError]) -> list[type[GatewayError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in _all(child))]


def test_every_class_is_in_the_drawing() -> None:
    for kind in _all(GatewayError):
        if kind.__module__ == errors.__name__:
            assert kind.__name__ in (errors.__doc__ or "")


def test_codes_are_unique_but_for_the_abstract_parents() -> None:
    leaves = [kind for kind in _all(GatewayError) if not kind.__subclasses__()]
    assert len({kind.code for kind in leaves}) == len(leaves)


def test_a_client_s_fault_is_a_4xx_and_only_a_429_is_retryable() -> None:
    for kind in _all(GatewayError):
        if kind.fault is Fault.CLIENT:
            assert 400 <= kind.status < 500
            assert kind.retryable is (kind.status == 429), "only what may be repeated later can be repeated"
