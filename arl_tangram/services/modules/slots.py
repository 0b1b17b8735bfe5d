"""Where a module keeps its parameters and buffers: which of them are others than when it was loaded, put back."""

# The dicts in which a module keeps them have no public name, and looking through its attributes takes ten times as long.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from typing import NamedTuple

import torch


class _Slot(NamedTuple):
    name: str
    owner: dict[str, torch.Tensor | None]
    key: str
    tensor: torch.Tensor


class Slots:
    """The parameters and buffers that a module has now, each where it is registered."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._slots = [
            _Slot(f"{prefix}.{key}" if prefix else key, owner, key, tensor)
            for prefix, part in module.named_modules()
            for owner in (part._parameters, part._buffers)
            for key, tensor in owner.items()
            if tensor is not None
        ]

    @property
    def replaced(self) -> tuple[str, ...]:
        """The names of those that were removed, or replaced by others."""
        return tuple(slot.name for slot in self._slots if slot.owner.get(slot.key) is not slot.tensor)

    def put_back(self) -> None:
        """Register again what was removed or replaced."""
        for slot in self._slots:
            if slot.owner.get(slot.key) is not slot.tensor:
                slot.owner[slot.key] = slot.tensor
