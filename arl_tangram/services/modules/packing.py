"""Pack the parameters and buffers of a torch module into one run of bytes, and let them lie wherever a copy of it is.

The tensors stay the same objects: only what they point to changes. What shared memory before (ties, aliases, views)
shares it afterwards, because whole windows of storages are packed, each once, and not tensors.

Evicted tensors are stubs without elements, in a shape that fits no computation, so that a stray call fails.
"""

# The count of the uses of a storage, and that of the writes to a tensor, have no public name.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch.utils.dlpack import from_dlpack

from arl_tangram.managers.gpu.devices.arena import ALIGNMENT, rounded
from arl_tangram.services.modules.packable import STUB_SHAPE, extent, refuse_unpackable

_PIECE_WORDS = 1 << 17  # 1 MiB for each sum: pieces that have changed places are found, too


class _Lies(NamedTuple):
    """How one tensor lies in the packed bytes."""

    names: tuple[str, ...]
    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class _Window(NamedTuple):
    """A run of bytes of one storage that is used, and where it goes."""

    storage: torch.UntypedStorage
    start: int
    size: int
    offset: int


class _Memory(NamedTuple):
    """Memory that tensors were attached to, and how often its storage was in use before there were any."""

    own: torch.Tensor
    uses: int

    @property
    def held(self) -> int:
        """How many tensors lie in it."""
        storage = self.own.untyped_storage()
        return torch._C._storage_Use_Count(storage._cdata) - self.uses


@dataclass(frozen=True, slots=True)
class _Layout:
    tensors: tuple[_Lies, ...]
    size_bytes: int


class Packing:
    """Named tensors that move together: packed once, then attached to memory and detached from it again and again.

    Made by `of`, `of_tensors` and `of_copy`. Not thread-safe: one call at a time, and none while the module computes.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor], layout: _Layout, windows: list[_Window]) -> None:
        self._tensors = [tensors[lies.names[0]] for lies in layout.tensors]
        self._layout = layout
        self._windows = windows
        self._stubs = {lies.dtype: torch.empty(STUB_SHAPE, dtype=lies.dtype) for lies in layout.tensors}
        self._memory: _Memory | None = None
        self._before: list[_Memory] = []  # of which somebody else still held views when it was detached
        self._versions: list[int] = []
        self._addresses: list[int] = []

    @classmethod
    def of(cls, module: torch.nn.Module) -> Packing:
        """Plan how to pack all parameters and buffers of a module, with those that no state dict has.

        Raises:
            ConfigurationError: one of them cannot be packed; the message names it and says why.
        """
        return cls.of_tensors(named_tensors(module))

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, torch.Tensor]) -> Packing:
        """Plan how to pack tensors; one may have several names. Raises as `of` does."""
        refuse_unpackable(tensors)
        layout, windows = _lay_out(tensors)
        return cls(tensors, layout, windows)

    def of_copy(self, tensors: Mapping[str, torch.Tensor]) -> Packing:
        """Return the same for the tensors of a deep copy of the module, which attach to copies of the same bytes."""
        return Packing(tensors, self._layout, [])

    @property
    def size_bytes(self) -> int:
        """How many bytes there are: each byte that is used once, and some for alignment."""
        return self._layout.size_bytes

    @property
    def tensors(self) -> int:
        """How many tensors there are; two names of one count once."""
        return len(self._tensors)

    def pack(self, into: torch.Tensor) -> None:
        """Copy the bytes to memory of `size_bytes` and detach; what the tensors lay in before is let go of."""
        for window in self._windows:
            source = torch.empty(0, dtype=torch.uint8, device=window.storage.device)
            source.set_(window.storage, window.start, (window.size,), (1,))
            into[window.offset : window.offset + window.size].copy_(source)
        self._windows.clear()
        self.detach()

    def attach(self, memory: torch.Tensor) -> None:
        """Let the tensors lie in memory (`uint8`) that begins with their packed bytes."""
        # A storage of its own over the same bytes: the uses of the arena's say nothing about one module.
        with _current(memory.device):  # torch hands over no memory of a GPU that is not the current one
            own = from_dlpack(memory[: self.size_bytes])
        storage = own.untyped_storage()
        self._memory = _Memory(own, torch._C._storage_Use_Count(storage._cdata))
        for tensor, lies in zip(self._tensors, self._layout.tensors, strict=True):
            tensor.data = _view(storage, lies)
        self._versions = [tensor._version for tensor in self._tensors]
        self._addresses = [tensor.data_ptr() for tensor in self._tensors]

    def detach(self) -> int:
        """Let the tensors lie nowhere, and return how many views of their memory somebody else holds."""
        for tensor, lies in zip(self._tensors, self._layout.tensors, strict=True):
            tensor.data = self._stubs[lies.dtype]
        if self._memory is not None:
            self._before.append(self._memory)
            self._memory = None
        return self.held

    @property
    def held(self) -> int:
        """How many views somebody else holds of memory that the tensors have, or had: it is not free before."""
        self._before = [memory for memory in self._before if memory.held]
        now = 0
        if self._memory is not None:
            there = zip(self._tensors, self._addresses, strict=True)
            now = self._memory.held - sum(tensor.data_ptr() == address for tensor, address in there)
        return now + sum(memory.held for memory in self._before)

    def has(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor, of whomever, lies in memory that the tensors have, or had."""
        if tensor.layout is not torch.strided:
            return False
        there = [*self._before, self._memory] if self._memory is not None else self._before
        storage = tensor.untyped_storage()
        return any(memory.own.untyped_storage()._cdata == storage._cdata for memory in there)

    @property
    def written(self) -> tuple[str, ...]:
        """The names of the tensors that something has written to, or let lie elsewhere, since they were attached."""
        return tuple(
            lies.names[0]
            for tensor, lies, version, address in zip(
                self._tensors, self._layout.tensors, self._versions, self._addresses, strict=True
            )
            if tensor._version != version or tensor.data_ptr() != address
        )


def named_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the parameters and buffers of a module by name; one that is registered twice comes under both names."""
    return dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))


def checksums(memory: torch.Tensor) -> torch.Tensor:
    """Return sums of packed bytes, on the device where they are, which differ where bytes differ by mistake."""
    words = memory.view(torch.int64)
    pieces = words.numel() // _PIECE_WORDS
    whole = words[: pieces * _PIECE_WORDS].view(pieces, _PIECE_WORDS).sum(dim=1)
    return torch.cat([whole, words[pieces * _PIECE_WORDS :].sum().reshape(1)])


def _current(device: torch.device) -> AbstractContextManager[object]:
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _view(storage: torch.UntypedStorage, lies: _Lies) -> torch.Tensor:
    empty = torch.empty(0, dtype=lies.dtype, device=storage.device)
    return empty.set_(storage, lies.offset // lies.dtype.itemsize, lies.shape, lies.stride)


def _lay_out(tensors: Mapping[str, torch.Tensor]) -> tuple[_Layout, list[_Window]]:
    names: dict[int, list[str]] = {}
    for name, tensor in tensors.items():
        names.setdefault(id(tensor), []).append(name)
    unique = {id(tensor): tensor for tensor in tensors.values()}
    windows = _windows(list(unique.values()))
    by_storage: dict[int, list[_Window]] = {}
    for window in windows:
        by_storage.setdefault(window.storage._cdata, []).append(window)
    lies = tuple(
        _Lies(tuple(names[key]), _place(tensor, by_storage), tensor.dtype, tuple(tensor.shape), tensor.stride())
        for key, tensor in unique.items()
    )
    size = windows[-1].offset + rounded(windows[-1].size) if windows else 0
    return _Layout(lies, size), windows


def _windows(tensors: list[torch.Tensor]) -> list[_Window]:
    """Return the runs of bytes that the tensors use, storage by storage, none of them twice.

    A run begins at a multiple of the alignment of its storage, so that all of it stays aligned as it was.
    """
    spans: dict[int, list[tuple[int, int]]] = {}
    storages: dict[int, torch.UntypedStorage] = {}
    for tensor in tensors:
        start, end = extent(tensor)
        if start < end:
            storage = tensor.untyped_storage()
            storages.setdefault(storage._cdata, storage)
            spans.setdefault(storage._cdata, []).append((start - start % ALIGNMENT, end))
    windows: list[_Window] = []
    offset = 0
    for key, storage in storages.items():
        for start, end in _merged(spans[key]):
            windows.append(_Window(storage, start, end - start, offset))
            offset += rounded(end - start)
    return windows


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of spans, in order, as spans that do not touch."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _place(tensor: torch.Tensor, windows: Mapping[int, list[_Window]]) -> int:
    """Return where the first byte of a tensor lies in the packed bytes; 0 if it has none."""
    start, end = extent(tensor)
    if start == end:
        return 0
    there = windows[tensor.untyped_storage()._cdata]
    window = there[bisect_right(there, start, key=lambda each: each.start) - 1]
    return window.offset + start - window.start
