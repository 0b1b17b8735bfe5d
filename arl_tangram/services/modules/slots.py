"""Where a module keeps its parameters and buffers: which of them are others than when it was loaded, put back."""

# The dicts in which a module keeps them have no public name, and each call looks through them.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, cast

import torch


class _Slot(NamedTuple):
    name: str
    owner: dict[str, torch.Tensor | None]
    key: str
    tensor: torch.Tensor


class Slots:
    """The parameters and buffers that a module has now, each where it is registered.

    Without buffers that no state dict has: these are tables that some modules make anew when they need longer ones, and
    what is computed with them stays the same.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        parts = cast("Iterable[tuple[str, torch.nn.Module]]", module.named_modules())
        self._slots = [
            _Slot(f"{prefix}.{key}" if prefix else key, owner, key, tensor)
            for prefix, part in parts
            for owner in _owners(part)
            for key, tensor in owner.items()
            if tensor is not None and not (owner is part._buffers and key in part._non_persistent_buffers_set)
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


def _owners(part: torch.nn.Module) -> list[dict[str, torch.Tensor | None]]:
    owners: list[object] = [part._parameters, part._buffers]
    # Those of TorchScript are no dicts, and nothing can be replaced in them.
    return [cast("dict[str, torch.Tensor | None]", owner) for owner in owners if isinstance(owner, dict)]
