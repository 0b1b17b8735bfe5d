"""The fields of one line of a trace, each read with its type checked."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, NoReturn, cast

from arl_tangram.errors import TraceFormatError

_LARGEST_INTEGER = (1 << 63) - 1


def parse(line: bytes) -> object:
    """Return the JSON value of a line.

    Raises:
        TraceFormatError: it is not JSON.
    """
    try:
        return json.loads(line, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise TraceFormatError(f"not JSON: {error}") from None


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


class Fields:
    """The fields of one JSON object; each reader checks the type and says which field is wrong."""

    __slots__ = ("_object",)

    def __init__(self, value: object) -> None:
        if not isinstance(value, dict):
            raise TraceFormatError(f"expected an object, not {shown(value)}")
        self._object = cast("dict[str, Any]", value)

    def get(self, key: str) -> Any:
        """Return what a field has, of whatever type."""
        try:
            return self._object[key]
        except KeyError:
            raise TraceFormatError(f"the field {key!r} is missing") from None

    def text(self, key: str) -> str:
        """Read a text."""
        value = self.get(key)
        return value if isinstance(value, str) else refuse(key, "a string", value)

    def text_or_none(self, key: str) -> str | None:
        """Read a text, or null."""
        return None if self.get(key) is None else self.text(key)

    def integer(self, key: str) -> int:
        """Read an integer of 64 bits."""
        return integer_of(key, self.get(key))

    def integer_or_none(self, key: str) -> int | None:
        """Read an integer of 64 bits, or null."""
        return None if self.get(key) is None else self.integer(key)

    def flag(self, key: str) -> bool:
        """Read true or false."""
        value = self.get(key)
        return value if isinstance(value, bool) else refuse(key, "true or false", value)

    def has(self, key: str) -> bool:
        """Whether a field is there."""
        return key in self._object

    def are_among(self, known: frozenset[str]) -> bool:
        """Whether there are no other fields than these."""
        return self._object.keys() <= known

    def besides(self, known: frozenset[str]) -> dict[str, None]:
        """Return the fields that are not among these."""
        return {key: None for key in self._object if key not in known}

    def is_true(self, key: str) -> bool:
        """Whether a field is there and true."""
        return self._object.get(key) is True

    def number(self, key: str) -> float:
        """Read a number; null stands for one that is not finite."""
        return number_of(key, self.get(key))

    def instant(self, key: str) -> float:
        """Read a point in time, which is always finite."""
        value = self.number(key)
        return value if math.isfinite(value) else refuse(key, "a time in seconds", self.get(key))

    def number_or_none(self, key: str) -> float | None:
        """Read a number, or null."""
        return None if self.get(key) is None else self.number(key)

    def items(self, key: str) -> list[Any]:
        """Read an array."""
        value = self.get(key)
        return value if isinstance(value, list) else refuse(key, "an array", value)  # pyright: ignore[reportUnknownVariableType]

    def pairs(self, key: str) -> Iterable[tuple[str, Any]]:
        """Read the fields of an object."""
        value = self.get(key)
        return cast("dict[str, Any]", value).items() if isinstance(value, dict) else refuse(key, "an object", value)


def integer_of(key: str, value: object, expected: str = "an integer of 64 bits") -> int:
    """Return an integer that a field has."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST_INTEGER:
        return value
    return refuse(key, expected, value)


def number_of(key: str, value: object) -> float:
    """Return a number that a field has; null stands for one that is not finite."""
    if value is None:
        return math.nan
    number = value if isinstance(value, float) else float(integer_of(key, value, "a number"))
    return number if math.isfinite(number) else refuse(key, "a finite number", value)


def refuse(key: str, expected: str, value: object) -> NoReturn:
    """Say what a field takes.

    Raises:
        TraceFormatError: in any case.
    """
    raise TraceFormatError(f"the field {key!r} takes {expected}, not {shown(value)}")


def shown(value: object) -> str:
    """Return a value as a message shows it, which may be long."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
