"""Where a module keeps its parameters and buffers: the loaded ones are put back, others go along."""

# The dicts in which a module keeps them have no public name, and each call looks through them.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, cast

import torch


class _Slot(NamedTuple):
    name: str
    owner: dict[str, torch.Tensor | None]
    key: str
    tensor: torch.Tensor


class _Made(NamedTuple):
    """A buffer that a module has made itself, and where that is registered."""

    owner: dict[str, torch.Tensor | None]
    key: str
    tensor: torch.Tensor

    @property
    def is_there(self) -> bool:
        return self.owner.get(self.key) is self.tensor


class Slots:
    """The parameters and buffers that a module has now, each where it is registered.

    Those may not be replaced, but for buffers that no state dict has: these are tables that some modules make anew when
    they need longer ones, and what is computed with them stays the same. Such tables, and buffers that were not there
    before, are not packed: they have memory of their own, and are carried from device to device.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        parts = list(cast("Iterable[tuple[str, torch.nn.Module]]", module.named_modules()))
        self._slots = [
            _Slot(f"{prefix}.{key}" if prefix else key, owner, key, tensor)
            for prefix, part in parts
            for owner in _owners(part)
            for key, tensor in owner.items()
            if tensor is not None and not (owner is part._buffers and key in part._non_persistent_buffers_set)
        ]
        self._buffers = [owner for _, part in parts for owner in _owners(part) if owner is part._buffers]
        all_of_them = (each for _, part in parts for owner in _owners(part) for each in owner.values())
        self._loaded = {id(tensor): tensor for tensor in all_of_them if tensor is not None}
        self._on_host: list[tuple[_Made, int]] = []  # and on which of its devices each was before

    @property
    def replaced(self) -> tuple[str, ...]:
        """The names of those that were removed, or replaced by others."""
        return tuple(slot.name for slot in self._slots if slot.owner.get(slot.key) is not slot.tensor)

    def put_back(self) -> None:
        """Register again what was removed or replaced."""
        for slot in self._slots:
            if slot.owner.get(slot.key) is not slot.tensor:
                slot.owner[slot.key] = slot.tensor

    @property
    def has_made(self) -> bool:
        """Whether the module has made buffers itself."""
        return next(self._made(), None) is not None

    def separate(self, lies: Callable[[torch.Tensor], bool], devices: Sequence[str], *, to_host: bool) -> None:
        """Put back what was removed or replaced, and let no buffer that the module has made lie in packed memory.

        Nothing may compute with them. Waits for what devices have to do.

        Args:
            lies: tells whether a tensor lies in packed memory.
            devices: where the module is, as torch calls them.
            to_host: bring all that it has made on these devices to the host.

        Raises:
            RuntimeError: something cannot be copied; it is where it was.
        """
        self.put_back()
        for owner, key, tensor in list(self._made()):
            home = _index(devices, tensor)
            if to_host and home is not None and tensor.device.type != "cpu":
                owner[key] = on_host = tensor.detach().to("cpu", copy=True)
                self._on_host.append((_Made(owner, key, on_host), home))
            elif lies(tensor):
                owner[key] = tensor.detach().clone()
                if tensor.is_cuda:
                    torch.cuda.current_stream(tensor.device).synchronize()

    def carried(self, before: Sequence[str], devices: Sequence[str]) -> Callable[[], None]:
        """Copy what the module has made to its devices; return what registers the copies, which does not fail.

        Args:
            before: on which devices it was.
            devices: on which it is now, one for each of those.

        Raises:
            RuntimeError: something cannot be copied.
        """
        homes = {id(made.tensor): home for made, home in self._on_host if made.is_there}
        copies: list[_Made] = []
        for owner, key, tensor in self._made():
            home = homes.get(id(tensor), _index(before, tensor))
            if home is not None:
                copies.append(_Made(owner, key, tensor.detach().to(devices[home])))

        def register() -> None:
            for owner, key, tensor in copies:
                owner[key] = tensor
            self._on_host.clear()

        return register

    def _made(self) -> Iterator[_Made]:
        for owner in self._buffers:
            for key, tensor in owner.items():
                if tensor is not None and id(tensor) not in self._loaded:
                    yield _Made(owner, key, tensor)


def _index(devices: Sequence[str], tensor: torch.Tensor) -> int | None:
    name = str(tensor.device)
    return devices.index(name) if name in devices else None


def _owners(part: torch.nn.Module) -> list[dict[str, torch.Tensor | None]]:
    owners: list[object] = [part._parameters, part._buffers]
    # Those of TorchScript are no dicts, and nothing can be replaced in them.
    return [cast("dict[str, torch.Tensor | None]", owner) for owner in owners if isinstance(owner, dict)]
