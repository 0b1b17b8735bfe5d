"""Tell apart the kinds of values that may hold tensors, in a way that type checkers follow."""

from __future__ import annotations

import copy
import dataclasses
from collections import UserDict
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt


def is_array(value: object) -> TypeGuard[npt.NDArray[Any]]:
    """Whether it is an array of numpy."""
    return isinstance(value, np.ndarray)


def is_dict(value: object) -> TypeGuard[MutableMapping[Any, Any]]:
    """Whether it is a dict, or a `UserDict` as tokenizers give, or of a class derived from these."""
    return isinstance(value, (dict, UserDict))


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether it is a list."""
    return isinstance(value, list)


def is_tuple(value: object) -> TypeGuard[tuple[Any, ...]]:
    """Whether it is a tuple, with names or without."""
    return isinstance(value, tuple)


def mover(value: object) -> Callable[[object], Any] | None:
    """Return the method `to` of a mapping that has one."""
    to: Any = getattr(value, "to", None) if isinstance(value, Mapping) else None  # pyright: ignore[reportUnknownArgumentType]
    return to if callable(to) else None


def fields_of(value: object) -> dict[str, Any] | None:
    """Return what the constructor of a dataclass takes, or None for something else."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return None
    return {each.name: getattr(value, each.name) for each in dataclasses.fields(value) if each.init}


def with_fields(value: Any, fields: dict[str, Any]) -> Any:
    """Return a dataclass with other fields."""
    return dataclasses.replace(value, **fields)


def with_values(mapping: MutableMapping[Any, Any], values: Mapping[Any, Any]) -> Any:
    """Return a dict of the same type, with what else it holds, and other values."""
    changed = copy.copy(mapping)
    changed.update(values)
    return changed


def with_items(items: list[Any] | tuple[Any, ...], changed: list[Any]) -> Any:
    """Return a list, a tuple or a named tuple of the same type with other items."""
    if isinstance(items, tuple) and hasattr(items, "_fields"):
        return type(items)(*changed)
    return type(items)(changed)
