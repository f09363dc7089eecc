"""Numbers and times in words."""

from __future__ import annotations

import pytest

from gateway.cli import words


@pytest.mark.parametrize(
    "given, text",
    [
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (3599, "59 min"),
        (3600, "1 h"),
        (86_399, "23 h"),
        (86_400 * 400, "400 d"),
    ],
)
def test_a_span_has_one_unit(given: float, text: str) -> None:
    assert words.span(given) == text


def test_a_span_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="not a number"):
        words.span(float("nan"))


@pytest.mark.parametrize("wall, text", [(97.0, "3 s ago"), (103.0, "0 s ago"), (None, "–")])
def test_ago_counts_from_now_and_takes_clocks_that_differ_as_now(wall: float | None, text: str) -> None:
    assert words.ago(wall, 100.0) == text


@pytest.mark.parametrize(
    "given, text",
    [
        (None, "–"),
        (0, "0.00"),
        (0.0001, "<0.001"),
        (0.0041, "0.004"),
        (0.41, "0.41"),
        (6.8151, "6.82"),
        (99.994, "99.99"),
        (612.34, "612"),
    ],
)
def test_seconds_keep_what_matters(given: float | None, text: str) -> None:
    assert words.seconds(given) == text


@pytest.mark.parametrize("given, text", [(None, "–"), (0.0124, "12.4"), (0.0002, "0.2"), (1.5, "1500")])
def test_millis(given: float | None, text: str) -> None:
    assert words.millis(given) == text


@pytest.mark.parametrize("given, text", [(None, "–"), (80.06, "80.1"), (12_345.6, "12,346")])
def test_rates(given: float | None, text: str) -> None:
    assert words.rate(given) == text


@pytest.mark.parametrize("given, text", [(None, "–"), (0, "0"), (1_234_567.0, "1,234,567")])
def test_counts(given: float | None, text: str) -> None:
    assert words.count(given) == text


def test_plurals_and_shares() -> None:
    assert [words.plural(number, "row") for number in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]
    assert [words.percent(share) for share in (None, 0.5)] == ["–", "50 %"]


@pytest.mark.parametrize(
    "given, text",
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (151_200, "148 KiB"),
        (1024**3, "1.0 GiB"),
        (1024**5, "1024.0 TiB"),
    ],
)
def test_sizes(given: int, text: str) -> None:
    assert words.size(given) == text


def test_a_moment_is_local_time(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    try:
        assert words.moment(1_700_000_000) == "2023-11-14 22:13:20"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_an_estimate_is_marked_unless_nothing_is_known() -> None:
    assert [words.about(text, estimated=True) for text in ("80.1", "–")] == ["~80.1", "–"]
    assert words.about("80.1", estimated=False) == "80.1"
