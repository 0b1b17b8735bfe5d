"""Data parallel calls: split the batch in the arguments of a call, and join the results of its parts.

The batch is the first dimension of tensors and arrays, and the items of lists, wherever they are: as an argument, or
in a tuple, a dict or a dataclass that is one. All of them must agree on its size. Everything else goes to every part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from arl_tangram.errors import UsageError
from arl_tangram.services.modules.kinds import (
    fields_of,
    is_array,
    is_dict,
    is_list,
    is_tuple,
    with_fields,
    with_items,
    with_values,
)

Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]


def split(arguments: Arguments, parts: int) -> list[Arguments]:
    """Return the arguments of each part: as even as possible, none of them empty; one part if there is no batch.

    Raises:
        UsageError: the sizes of the batch in two arguments differ.
    """
    sizes = sorted(set(_sizes(arguments)))
    if len(sizes) > 1:
        raise UsageError(
            f"a call is split over {parts} devices along the first dimension of its tensors, arrays and lists, which "
            f"have different sizes here: {', '.join(map(str, sizes))}"
        )
    size = sizes[0] if sizes else 1
    if size < 2:
        return [arguments]
    count = min(parts, size)
    borders = [size * part // count for part in range(count + 1)]
    return [_part(arguments, slice(*borders[part : part + 2])) for part in range(count)]


def join(results: Sequence[Any]) -> Any:
    """Return the results of the parts as one, in their order.

    Raises:
        UsageError: they are of a kind that cannot be joined, such as one number for a whole part.
    """
    first = results[0]
    if len(results) == 1 or all(each is None for each in results):
        return first
    if any(type(each) is not type(first) for each in results):
        raise UsageError(f"results of parts differ in type: {', '.join(type(each).__qualname__ for each in results)}")
    if isinstance(first, torch.Tensor):
        _check_shapes(results)
        return torch.cat(list(results))
    if is_array(first):
        _check_shapes(results)
        return np.concatenate(list(results))
    if (fields := fields_of(first)) is not None:
        return with_fields(first, {name: join([getattr(each, name) for each in results]) for name in fields})
    if is_dict(first):
        if any(each.keys() != first.keys() for each in results):
            keys = ", ".join(str(list(each)) for each in results)
            raise UsageError(f"dicts of parts differ in keys: {keys}")
        return with_values(first, {key: join([each[key] for each in results]) for key in first})
    if is_list(first):
        return with_items(first, [item for each in results for item in each])
    if is_tuple(first):
        if len({len(each) for each in results}) > 1:
            raise UsageError(f"tuples of parts differ in length: {', '.join(str(len(each)) for each in results)}")
        return with_items(first, [join(column) for column in zip(*results, strict=True)])
    raise _unjoinable(first)


def _unjoinable(part: object) -> UsageError:
    return UsageError(
        f"a {type(part).__qualname__} for each part of a batch cannot be joined: return tensors with the batch as "
        f"their first dimension, or lists"
    )


def _check_shapes(parts: Sequence[Any]) -> None:
    """Check that tensors or arrays differ in their first dimension only, and have one."""
    shapes = [tuple(part.shape) for part in parts]
    if not any(shapes):
        raise _unjoinable(parts[0])
    if not all(shapes) or len({shape[1:] for shape in shapes}) > 1:
        raise UsageError(
            f"the results of parts cannot be joined: they are {', '.join(map(str, shapes))}, and may differ in their "
            f"first dimension only; pad them to one length that does not depend on the batch, or return lists"
        )


def _sizes(value: Any) -> list[int]:
    if isinstance(value, torch.Tensor):
        return [value.shape[0]] if value.dim() else []
    if is_array(value):
        return [value.shape[0]] if value.ndim else []
    if is_list(value):
        return [len(value)]
    if (fields := fields_of(value)) is not None:
        return [size for each in fields.values() for size in _sizes(each)]
    if is_tuple(value):
        return [size for each in value for size in _sizes(each)]
    if is_dict(value):
        return [size for each in value.values() for size in _sizes(each)]
    return []


def _part(value: Any, part: slice) -> Any:
    if isinstance(value, torch.Tensor):
        return value[part] if value.dim() else value
    if is_array(value):
        return value[part] if value.ndim else value
    if is_list(value):
        return value[part]
    if (fields := fields_of(value)) is not None:
        return with_fields(value, {name: _part(each, part) for name, each in fields.items()})
    if is_tuple(value):
        return with_items(value, [_part(each, part) for each in value])
    if is_dict(value):
        return with_values(value, {key: _part(each, part) for key, each in value.items()})
    return value
