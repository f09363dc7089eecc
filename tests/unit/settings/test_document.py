"""YAML text: plain data, places, and refusals with line and column."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.settings.document import MAX_TEXT_BYTES, Spot, read


def faults(text: str) -> list[str]:
    return [str(fault) for fault in read(text, "f.yaml").faults]


def test_data_and_the_places_of_keys_and_values() -> None:
    document = read("a:\n  - b: 1\n    c: [x, y]\n", "f.yaml")
    assert document.data == {"a": [{"b": 1, "c": ["x", "y"]}]}
    assert document.keys["a", 0, "c"] == Spot(3, 5)
    assert document.values["a", 0, "b"] == Spot(2, 8)
    assert document.values["a", 0, "c", 1] == Spot(3, 12)
    assert document.faults == []


@pytest.mark.parametrize(
    "text, value",
    [
        ("yes", "yes"),
        ("on", "on"),
        ("12:30", "12:30"),
        ("2024-01-02", "2024-01-02"),
        ("0644", 644),
        ("0x10", "0x10"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("", None),
        ("-3", -3),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("-.inf", float("-inf")),
        ("127.0.0.1:8080", "127.0.0.1:8080"),
        ("'8'", "8"),
        ("9" * 30, "9" * 30),
        ("!!str 8", "8"),
    ],
)
def test_plain_values_follow_yaml_1_2(text: str, value: Any) -> None:
    assert read(f"a: {text}", "f.yaml").data == {"a": value}


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_text_is_an_empty_document(text: str) -> None:
    document = read(text, "f.yaml")
    assert document.data == {}
    assert document.faults == [] or text == "---\n"


@pytest.mark.parametrize(
    "text, expected",
    [
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3:1 a: stands twice; first on line 1"),
        ("a: {b: 1, b: 2}\n", "f.yaml:1:11 a.b: stands twice; first on line 1"),
        ("a:\n\tb: 1\n", "f.yaml:2:1: not valid YAML: a tab; YAML is indented with spaces"),
        (
            "a: b: c\n",
            'f.yaml:1:5: not valid YAML: a ": " where none can stand; is the line indented right, or does a value',
        ),
        (
            "a: [1\nb: 2\n",
            "f.yaml:2:2: not valid YAML: expected ',' or ']', but got ':' (while parsing a flow sequence that",
        ),
        (
            "a: 1\n---\nb: 1\n",
            'f.yaml:2:1: not valid YAML: a second document ("---"); one file holds one configuration',
        ),
        ("- a\n", 'f.yaml:1:1: the file must be a mapping of sections ("clients: ...")'),
        ("just text", 'f.yaml:1:1: the file must be a mapping of sections ("clients: ...")'),
        ("a: *b\n", "f.yaml:1:4: not valid YAML: found undefined alias 'b'"),
        ("a: !!python/object:os.system x\n", "f.yaml:1:4 a: a YAML tag (!...) is not allowed; write the plain value"),
        ("[a, b]: 1\n", "f.yaml:1:1: a key must be plain text"),
        ("a: 1\x07\n", "f.yaml: not valid YAML: a character that is not allowed, at position 5"),
    ],
)
def test_a_bad_text_is_refused_with_its_place(text: str, expected: str) -> None:
    assert faults(text)[0].startswith(expected)


def test_every_fault_is_kept() -> None:
    assert len(faults("a: !x 1\nb: !y 2\nb: 3\n")) == 3


def test_an_alias_repeats_its_value() -> None:
    assert read("a: &x {b: 1}\nc: *x\n", "f.yaml").data == {"a": {"b": 1}, "c": {"b": 1}}


def test_an_alias_that_holds_itself_ends() -> None:
    assert "too large or too deep" in faults("a: &x [*x]\n")[0]


def test_an_alias_bomb_ends() -> None:
    lines = ["a0: &a0 [1,1,1,1,1,1,1,1,1,1]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert any("too large or too deep" in fault for fault in faults("\n".join(lines)))


def test_deep_nesting_ends() -> None:
    assert "too deep" in faults("a: " + "[" * 5000 + "]" * 5000)[0]


def test_a_huge_text_is_refused_unread() -> None:
    assert faults("#" * (MAX_TEXT_BYTES + 1)) == ["f.yaml: over 1024 KiB: this is no configuration file"]


def test_a_fault_where_nothing_stands_has_the_place_of_its_parent() -> None:
    document = read("a:\n  b: 1\n", "f.yaml")
    assert str(document.fault(("a", "c", "d"), "gone")) == "f.yaml:1:1 a.c.d: gone"
    assert str(document.fault(("z",), "gone")) == "f.yaml:1:1 z: gone"


@given(st.text(max_size=60))
def test_no_text_raises_and_what_is_no_mapping_is_a_fault(text: str) -> None:
    document = read(text, "f.yaml")
    assert isinstance(document.data, dict)
    assert all(str(fault).startswith("f.yaml") for fault in document.faults)


VALUES = st.recursive(
    st.one_of(st.booleans(), st.integers(-(10**9), 10**9), st.text("abc:-#' \"", max_size=6)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text("abc", min_size=1), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text("abc", min_size=1), VALUES, max_size=3))
def test_json_means_what_it_means_in_json(data: dict[str, Any]) -> None:
    import json

    document = read(json.dumps(data), "f.yaml")
    assert document.data == data
    assert document.faults == []
