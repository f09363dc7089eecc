"""The fields of a request's body, read one by one; what is wrong with them is told all at once, as vLLM tells it.

Pure.  Only what decides about an answer is read: a field that nothing here obeys is not checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from gateway.simulator import refusals
from gateway.simulator.refusals import Fault

_TRUE: Final = ("true", "t", "yes", "y", "on", "1")
_FALSE: Final = ("false", "f", "no", "n", "off", "0")
_OBJECT: Final = "Input should be a valid dictionary or object to extract fields from"


class Reader:
    """Reads an object and keeps the faults; owner: one request. ``place`` is where the object stands in the body."""

    __slots__ = ("_place", "faults", "fields")

    def __init__(self, fields: dict[str, Any], *, place: str = "body", faults: list[Fault] | None = None) -> None:
        self.fields = fields
        self.faults = [] if faults is None else faults
        self._place = place

    def fault(
        self, kind: str, name: str, *, message: str, given: object, context: dict[str, Any] | None = None
    ) -> None:
        """Note what is wrong with a field (or, with an empty ``name``, with the object)."""
        place = f"{self._place}.{name}" if name else self._place
        self.faults.append(Fault(kind, place, message, given, context))

    def value_error(self, name: str, *, words: str, given: object) -> None:
        """Note what a rule of the API says against a field."""
        told = {"error": ValueError(words)}
        self.fault("value_error", name, message=f"Value error, {words}", given=given, context=told)

    def raise_faults(self) -> None:
        """Refuse the request if anything is wrong."""
        if self.faults:
            raise refusals.validation(self.faults)

    def required(self, name: str) -> bool:
        """Whether the field is there; its absence is a fault."""
        if name in self.fields:
            return True
        self.fault("missing", name, message="Field required", given=self.fields)
        return False

    def integer(self, name: str) -> int | None:
        """Return a whole number, None for none."""
        value = self.fields.get(name)
        if value is None or isinstance(value, int):
            return value
        words = "Input should be a valid integer"
        if isinstance(value, str):
            if re.fullmatch(r"[+-]?\d+", value.strip()):
                return int(value)
            told = f"{words}, unable to parse string as an integer"
            self.fault("int_parsing", name, message=told, given=value)
        elif isinstance(value, float):
            if value.is_integer():
                return int(value)
            told = f"{words}, got a number with a fractional part"
            self.fault("int_from_float", name, message=told, given=value)
        else:
            self.fault("int_type", name, message=words, given=value)
        return None

    def boolean(self, name: str) -> bool:
        """Return whether a field is set."""
        value = self.fields.get(name)
        if value is None or isinstance(value, bool):
            return value is True
        text = str(value).lower()
        if isinstance(value, str | int) and text in (*_TRUE, *_FALSE):
            return text in _TRUE
        words = "Input should be a valid boolean"
        if isinstance(value, str | int):
            self.fault("bool_parsing", name, message=f"{words}, unable to interpret input", given=value)
        else:
            self.fault("bool_type", name, message=words, given=value)
        return False

    def number(self, name: str) -> float | None:
        """Return a number, None for none."""
        value = self.fields.get(name)
        if value is None or isinstance(value, int | float):
            return None if value is None else float(value)
        words = "Input should be a valid number"
        if isinstance(value, str):
            self.fault("float_parsing", name, message=f"{words}, unable to parse string as a number", given=value)
        else:
            self.fault("float_type", name, message=words, given=value)
        return None

    def mapping(self, name: str) -> dict[str, Any] | None:
        """Return an object, None for none."""
        value = self.fields.get(name)
        if value is None or isinstance(value, dict):
            return value
        self.fault("dict_type", name, message="Input should be a valid dictionary", given=value)
        return None

    def elements(self, name: str) -> list[Any]:
        """Return a list; empty for none."""
        value = self.fields.get(name)
        if value is None:
            return []
        if isinstance(value, list):
            return value
        self.fault("list_type", name, message="Input should be a valid list", given=value)
        return []

    def objects(self, name: str) -> list[Reader]:
        """Return readers of a list's objects; what is no object is a fault."""
        found = []
        for index, value in enumerate(self.elements(name)):
            if isinstance(value, dict):
                found.append(Reader(value, place=f"{self._place}.{name}.{index}", faults=self.faults))
            else:
                self.fault("model_attributes_type", f"{name}.{index}", message=_OBJECT, given=value)
        return found

    def literal(self, name: str, allowed: Iterable[str]) -> None:
        """Note a fault unless the field is one of ``allowed``."""
        value = self.fields.get(name)
        names = [f"'{one}'" for one in allowed]
        if f"'{value}'" not in names or not isinstance(value, str):
            expected = f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]
            told = {"expected": expected}
            self.fault("literal_error", name, message=f"Input should be {expected}", given=value, context=told)

    def text_or_list(self, name: str) -> None:
        """Note the two faults of a field that is neither text nor a list."""
        value = self.fields.get(name)
        if not isinstance(value, str | list):
            self.fault("string_type", name, message="Input should be a valid string", given=value)
            self.fault("list_type", name, message="Input should be a valid list", given=value)
