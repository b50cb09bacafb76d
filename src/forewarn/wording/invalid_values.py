"""What is wrong with a value that an operator gave, in words that do not name our types."""

from collections.abc import Mapping
from typing import Any, Final

_SENTENCES: Final[Mapping[str, str]] = {
    "float_parsing": "{input!r} is not a number",
    "float_type": "{input!r} is not a number",
    "finite_number": "{input!r} is not a finite number",
    "int_parsing": "{input!r} is not a whole number",
    "int_from_float": "{input!r} is not a whole number",
    "int_type": "{input!r} is not a whole number",
    "bool_parsing": "{input!r} is neither true nor false",
    "bool_type": "{input!r} is neither true nor false",
    "enum": "{input!r} is not one of {expected}",
    "greater_than_equal": "{input} is too low; the minimum is {ge}",
    "greater_than": "{input} is too low; use a value above {gt}",
    "less_than_equal": "{input} is too high; the maximum is {le}",
    "path_type": "{input!r} is not a valid path",
    "string_type": "{input!r} is not text in quotes",
    "string_too_short": "it is empty",
    "too_short": "it is empty",
    "string_pattern_mismatch": "it does not match the pattern {pattern}",
    "string_too_long": "it has more than {max_length} characters",
    "too_long": "it has more than {max_length} items",
    "tuple_type": "it is not a list",
    "model_type": "it is not a table",
    "model_attributes_type": "it is not a table of keys and values",
    "dict_type": "it is not a table of keys and values",
    "list_type": "it is not a list",
    "missing": "it is required",
    "extra_forbidden": "unknown key",
    "union_tag_invalid": "{input!r} is not one of {expected_tags}",
    "union_tag_not_found": "it is required",
}
_UNNAMED: Final[Mapping[str, str]] = {
    "{input!r} is not one of": "it must be one of",
    "{input!r}": "it",
    "{input}": "it",
}
"""What is said instead of a value that may be a secret."""


def say_wrong(kind: str, value: object, **bounds: object) -> str:
    """Return why *value* was refused, as it stands behind a colon."""
    return _SENTENCES[kind].format(input=value, **bounds)


def say_invalid(error: Mapping[str, Any], *, repeats: bool = True) -> str:
    """Return why a value was refused, from what pydantic says about it.

    Unless it *repeats* the value, it is called "it", as are values that can be long.
    """
    kind, bounds = error.get("type"), dict(error.get("ctx", {}))
    if kind is None or kind not in _SENTENCES:  # our own refusals have none
        return str(error["msg"]).removeprefix("Value error, ").rstrip(".")
    value = bounds.pop("tag", error["input"])
    if repeats and not isinstance(value, dict | list):
        return say_wrong(kind, value, **bounds)
    sentence = _SENTENCES[kind]
    for words, instead in _UNNAMED.items():
        sentence = sentence.replace(words, instead)
    return sentence.format(**bounds)
