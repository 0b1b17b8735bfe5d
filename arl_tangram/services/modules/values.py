"""Carry arguments to a device and results to the host, with what is in lists, tuples, dicts and dataclasses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from arl_tangram.services.modules.kinds import (
    fields_of,
    is_array,
    is_dict,
    is_list,
    is_tuple,
    mover,
    with_fields,
    with_items,
    with_values,
)


def to_device(value: Any, device: torch.device) -> Any:
    """Return the value with its tensors on the device; a mapping that is no dict and has a method `to` uses that."""

    def moved(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.to(device)
        to = mover(leaf)
        return leaf if to is None else to(device)

    return _rebuilt(value, moved)


def to_host(value: Any) -> Any:
    """Return the value with copies of its tensors, which share no memory with a service. Not under inference mode."""

    def copied(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().to("cpu", copy=True)
        if is_array(leaf) and not leaf.flags.owndata:  # it may be a view of a tensor
            return leaf.copy()
        return leaf

    return _rebuilt(value, copied)


def _rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return the value with each leaf changed; containers are made anew only where one of their leaves is another."""
    if (fields := fields_of(value)) is not None:
        new = {name: _rebuilt(leaf, change) for name, leaf in fields.items()}
        return value if _same(fields.values(), new.values()) else with_fields(value, new)
    if is_dict(value):
        pairs = {key: _rebuilt(leaf, change) for key, leaf in value.items()}
        return value if _same(value.values(), pairs.values()) else with_values(value, pairs)
    if is_list(value) or is_tuple(value):
        items = [_rebuilt(leaf, change) for leaf in value]
        return value if _same(value, items) else with_items(value, items)
    return change(value)


def _same(old: Iterable[Any], new: Iterable[Any]) -> bool:
    return all(a is b for a, b in zip(old, new, strict=True))
