"""Sums over the last so many seconds."""

from __future__ import annotations

from gateway.core.admission.window import Window


def test_a_window_forgets_what_is_older_than_its_length_and_never_earlier() -> None:
    window = Window(60.0)
    window.add(1, 100.2)
    window.add(2, 100.9)
    window.add(4, 130.0)
    assert window.level(130.0) == 7
    assert window.level(160.8) == 7, "the second's last one counts for all of them"
    assert window.level(160.9) == 4
    assert window.level(190.0) == 0


def test_what_is_taken_back_is_taken_from_when_it_came() -> None:
    window = Window(60.0)
    early, late = window.add(1, 0.0), window.add(1, 50.0)
    window.take_back(1, early, now=55.0)
    assert window.level(55.0) == 1
    assert window.level(60.0) == 1, "not one too few once the first is forgotten"
    window.take_back(1, early, now=70.0)
    window.take_back(1, late, now=200.0)
    assert window.level(200.0) == 0


def test_a_window_says_when_it_will_be_below_a_bound() -> None:
    window = Window(60.0)
    assert window.falls_below(1, 0.0) == 0.0
    window.add(5, 10.0)
    window.add(5, 20.0)
    assert window.falls_below(11, 30.0) == 0.0
    assert window.falls_below(10, 30.0) == 40.0
    assert window.falls_below(5, 30.0) == 50.0
    assert window.falls_below(0, 30.0) == 60.0, "never, in truth"


def test_a_window_tells_over_how_long_it_was_filled() -> None:
    window = Window(60.0)
    assert window.paced(0.0) == (0.0, 0.0)
    window.add(3, 10.0)
    assert window.paced(10.0) == (0.0, 0.0)
    window.add(1, 20.0)
    window.add(1, 40.0)
    assert window.paced(50.0) == (30.0, 2.0)
    assert window.paced(75.0) == (20.0, 1.0), "the first is forgotten"
