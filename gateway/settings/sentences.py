"""What pydantic found wrong, in sentences that say what is wanted and repeat no value.

Not a station.  Pure text, for every file that is validated by models.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from pydantic_core import ErrorDetails

_WANTED: Final = MappingProxyType(
    {
        "missing": "required, but not there",
        "value_error": "{error}",
        "literal_error": "must be {expected}",
        "enum": "must be {expected}",
        "string_type": "must be text",
        "int_type": "must be a whole number",
        "int_parsing": "must be a whole number",
        "int_parsing_size": "must be a whole number",
        "int_from_float": "must be a whole number",
        "float_type": "must be a number",
        "float_parsing": "must be a number",
        "finite_number": "must be a number",
        "bool_type": "must be true or false",
        "bool_parsing": "must be true or false",
        "greater_than": "must be more than {gt:g}",
        "greater_than_equal": "must be at least {ge}",
        "less_than_equal": "must be at most {le:.15g}",
        "too_short": "needs at least one entry",
        "tuple_type": "must be a list",
        "model_type": "must be a mapping of keys and values",
        "model_attributes_type": "must be a mapping of keys and values",
    }
)
"""What is wanted, by pydantic's name of the error; its own context fills the gaps."""


def sentence(detail: ErrorDetails) -> str:
    """What pydantic found, in a sentence that says what is wanted and repeats no value."""
    context = detail.get("ctx", {})
    wanted = _WANTED.get(detail["type"], detail["msg"]).format_map(context)
    return wanted.replace("'", '"') if detail["type"] in {"literal_error", "enum"} else wanted
