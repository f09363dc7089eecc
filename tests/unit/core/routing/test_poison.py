"""Strikes, deaths and what is quarantined."""

from __future__ import annotations

from gateway.core.routing.poison import (
    CONFIRM_S,
    LINGER_S,
    MAX_QUARANTINED,
    MAX_SUSPECTS,
    PoisonBook,
    Quarantined,
    Released,
    Why,
)
from gateway.core.routing.policy import PoisonPolicy


class Ward:
    """A book, and what it decided."""

    def __init__(self, **given: float) -> None:
        self.book = PoisonBook()
        self.book.configure(PoisonPolicy(**given))

    @property
    def refused(self) -> list[str]:
        return [it.fingerprint for it in self.book.quarantined]

    def lost(self, backend: str, at: float, *fingerprints: str) -> None:
        """Connections to a backend ended."""
        for fingerprint in fingerprints:
            self.book.strike(fingerprint, backend, at=at, now=at)

    def death(self, backend: str, at: float, *fingerprints: str) -> None:
        """A backend dies, is found gone, and comes back after half a minute."""
        self.lost(backend, at, *fingerprints)
        self.book.ill(backend, now=at + 0.1)
        self.book.well(backend, now=at + 30.0)


def test_two_deaths_with_the_same_fingerprint_quarantine_it_and_tell_where() -> None:
    ward = Ward()
    ward.death("a", 100.0, "f")
    assert ward.refused == []
    ward.lost("b", 200.0, "f")
    (verdict,) = ward.book.ill("b", now=200.2)
    assert verdict == Quarantined(fingerprint="f", backends=("a", "b"), first_at=100.0, until=800.2)
    assert ward.refused == ["f"]
    assert ward.book.suspects == ()


def test_the_same_backend_can_die_twice() -> None:
    ward = Ward()
    ward.death("a", 100.0, "f")
    ward.death("a", 200.0, "f")
    assert ward.refused == ["f"]


def test_one_outage_is_one_death_however_many_requests_it_takes_along() -> None:
    ward = Ward()
    ward.lost("a", 100.0, "f", "g", "f")
    ward.book.ill("a", now=100.1)
    ward.lost("a", 100.5, "f")
    ward.lost("a", 105.0, "f")
    assert ward.refused == []
    ward.book.well("a", now=130.0)
    ward.lost("a", 99.0, "f")  # late news of it
    assert ward.refused == []


def test_a_lost_connection_that_nothing_confirms_is_no_death() -> None:
    ward = Ward()
    for at in (100.0, 200.0, 300.0):
        ward.lost("a", at, "f")
        ward.book.well("a", now=at + 0.5)
        assert ward.book.suspects == ("f",)
        ward.book.tick(now=at + CONFIRM_S)
        assert ward.book.suspects == ("f",)
        ward.book.tick(now=at + CONFIRM_S + 0.1)
        assert ward.book.suspects == ()
    ward.book.ill("a", now=400.0)
    assert ward.refused == []


def test_a_confirmation_that_comes_too_late_belongs_to_another_outage() -> None:
    ward = Ward(deaths=1)
    ward.lost("a", 100.0, "f")
    assert ward.book.ill("a", now=101.0 + CONFIRM_S) == []


def test_the_engine_s_own_word_confirms_at_once_and_a_server_that_lingers_does_not_end_the_outage() -> None:
    ward = Ward()
    ward.death("b", 50.0, "f", "g")
    ward.lost("a", 100.0, "f")
    (verdict,) = ward.book.dead("a", at=100.0, now=100.0)
    assert isinstance(verdict, Quarantined)
    assert ward.book.dead("a", at=100.0, now=100.0) == []
    ward.book.well("a", now=100.1)  # its server still answers that all is well
    ward.lost("a", 100.2, "h")
    ward.book.well("a", now=100.0 + LINGER_S)
    ward.lost("a", 101.0 + LINGER_S, "h")
    assert ward.book.ill("a", now=101.1 + LINGER_S) != [], "these were two"


def test_a_backend_that_was_found_gone_before_its_requests_were_heard_of() -> None:
    ward = Ward(deaths=1)
    ward.book.ill("a", now=100.0)
    (verdict,) = ward.book.strike("f", "a", at=99.9, now=100.1)
    assert isinstance(verdict, Quarantined)


def test_a_counter_that_fell_confirms_a_death_that_no_probe_saw() -> None:
    ward = Ward()
    for at in (100.0, 200.0):
        ward.lost("a", at, "f")
        ward.book.restarted("a", since=at - 1.0, now=at + 1.0)
    assert ward.refused == ["f"]


def test_a_counter_that_fell_after_an_outage_that_was_seen_is_no_second_one() -> None:
    ward = Ward()
    ward.death("a", 100.0, "f")
    assert ward.book.restarted("a", since=99.0, now=131.0) == []
    ward.lost("a", 129.0, "f")
    assert ward.refused == []
    ward.book.restarted("a", since=150.0, now=151.0)
    ward.lost("a", 150.5, "f")
    assert ward.refused == ["f"], "late news of a death that only the counter showed"


def test_a_bystander_that_completes_is_cleared_before_and_after_the_sentence() -> None:
    ward = Ward()
    ward.death("a", 100.0, "f", "g")
    assert ward.book.completed("g", at=99.0) == []  # that was before
    assert ward.book.suspects == ("f", "g")
    assert ward.book.completed("g", at=101.0) == []
    assert ward.book.suspects == ("f",)
    ward.death("b", 200.0, "f", "g")
    assert ward.refused == ["f"]
    assert ward.book.completed("f", at=90.0) == []
    assert ward.book.completed("f", at=201.0) == [Released(fingerprint="f", why=Why.COMPLETED)]
    assert ward.refused == []


def test_a_quarantine_ends_by_itself_and_with_a_clean_record() -> None:
    ward = Ward(quarantine_s=60)
    ward.death("a", 100.0, "f")
    ward.death("b", 140.0, "f")
    (held,) = ward.book.quarantined
    assert ward.book.tick(now=held.until - 0.1) == []
    assert ward.book.tick(now=held.until) == [Released(fingerprint="f", why=Why.EXPIRED)]
    ward.death("c", 220.0, "f")
    assert ward.refused == []


def test_one_death_is_forgotten_after_as_long() -> None:
    ward = Ward(quarantine_s=60)
    ward.death("a", 100.0, "f")
    ward.book.tick(now=159.9)
    assert ward.book.suspects == ("f",)
    ward.book.tick(now=160.1)
    assert ward.book.suspects == ()


def test_an_operator_lifts_what_is_refused_and_nothing_else() -> None:
    ward = Ward()
    ward.death("a", 100.0, "f")
    assert ward.book.lift("f") == []
    ward.death("b", 200.0, "f")
    assert ward.book.lift("f") == [Released(fingerprint="f", why=Why.OPERATOR)]
    assert ward.book.lift("f") == []


def test_what_is_refused_gets_no_further_strikes() -> None:
    ward = Ward(deaths=1)
    ward.death("a", 100.0, "f")
    changes = ward.book.changes
    ward.lost("b", 200.0, "f")
    assert (ward.book.suspects, ward.book.changes) == ((), changes)


def test_switched_off_nothing_is_suspected_and_what_was_is_let_in() -> None:
    ward = Ward()
    ward.death("a", 100.0, "f", "g")
    ward.death("b", 200.0, "f")
    changes = ward.book.changes
    ward.book.configure(PoisonPolicy(deaths=0))
    assert (ward.refused, ward.book.suspects) == ([], ())
    assert ward.book.changes > changes
    ward.death("a", 300.0, "f")
    assert ward.book.suspects == ()


def test_both_lists_are_bounded_and_the_oldest_go_first() -> None:
    ward = Ward(deaths=1)
    ward.lost("a", 100.0, *(f"f{n}" for n in range(MAX_SUSPECTS + 5)))
    assert len(ward.book.suspects) == MAX_SUSPECTS
    assert ward.book.suspects[0] == "f5"
    verdicts = ward.book.ill("a", now=100.1)
    assert len(ward.refused) == MAX_QUARANTINED
    assert sum(isinstance(it, Released) and it.why is Why.CROWDED for it in verdicts) == MAX_SUSPECTS - MAX_QUARANTINED
    assert ward.refused[-1] == f"f{MAX_SUSPECTS + 4}"
