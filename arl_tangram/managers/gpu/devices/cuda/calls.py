"""What is asked of CUDA for one GPU, through torch: memory, one stream for copies, and events."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from arl_tangram.errors import ConfigurationError


class Event(Protocol):
    """A point in the work of a stream."""

    def query(self) -> bool:
        """Tell whether all work before it is done."""
        ...

    def synchronize(self) -> None:
        """Wait for that; it blocks, and lets other threads run."""
        ...


class CudaCalls(Protocol):
    """What a CUDA device asks for. Nothing but `take`, `give_back` and waiting for an event blocks for long.

    Memory of torch that was used before may still be in use: by what the stream has to do for which it was allocated.
    """

    def take(self, size: int) -> torch.Tensor:
        """Allocate bytes on the GPU, for the default stream; RuntimeError if it has not so many."""
        ...

    def take_for_copies(self, size: int) -> torch.Tensor:
        """Allocate bytes for the stream for copies, which alone may use them; RuntimeError if there are not so many."""
        ...

    def give_back(self) -> None:
        """Let the driver have the memory of tensors that are gone."""
        ...

    def alone(self, part: torch.Tensor) -> torch.Tensor:
        """Return the same bytes as a tensor with a storage of its own, which keeps the memory alive."""
        ...

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Have the stream for copies copy bytes, within the GPU or from the host."""
        ...

    def fill(self, target: torch.Tensor, byte: int) -> None:
        """Have the stream for copies set bytes."""
        ...

    def event(self) -> Event:
        """Return an event behind all that the stream for copies has to do now."""
        ...

    def last_use(self) -> Event:
        """Return an event behind all that the default stream, where models run, has to do now."""
        ...

    def wait(self, event: Event) -> None:
        """Let the stream for copies wait for an event before it does what it is given from now on."""
        ...


class _Span:
    """Bytes of a GPU in the form that libraries hand to each other."""

    def __init__(self, part: torch.Tensor) -> None:
        self._part = part
        self.__cuda_array_interface__ = {
            "shape": (part.numel(),),
            "typestr": "|u1",
            "data": (part.data_ptr(), False),
            "version": 3,
        }


class TorchCuda:
    """CUDA as torch shows it.

    Args:
        index: which GPU, as CUDA counts those that this process can see.
    """

    def __init__(self, index: int) -> None:
        self._cuda: Any = torch.cuda  # parts of it have no types
        self._device = torch.device("cuda", index)
        self._stream = self._cuda.Stream(self._device)

    def take(self, size: int) -> torch.Tensor:
        """Allocate bytes on the GPU, for the default stream."""
        return torch.empty(size, dtype=torch.uint8, device=self._device)

    def take_for_copies(self, size: int) -> torch.Tensor:
        """Allocate bytes on the GPU, for the stream for copies."""
        with self._cuda.stream(self._stream):
            return torch.empty(size, dtype=torch.uint8, device=self._device)

    def give_back(self) -> None:
        """Let the driver have the memory of tensors that are gone."""
        self._cuda.empty_cache()

    def alone(self, part: torch.Tensor) -> torch.Tensor:
        """Return the same bytes as a tensor with a storage of its own."""
        return torch.as_tensor(_Span(part), device=self._device) if part.numel() else torch.empty_like(part)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Have the stream for copies copy bytes, within the GPU or from the host."""
        with self._cuda.stream(self._stream):
            target.copy_(source, non_blocking=True)

    def fill(self, target: torch.Tensor, byte: int) -> None:
        """Have the stream for copies set bytes."""
        with self._cuda.stream(self._stream):
            target.fill_(byte)

    def event(self) -> Event:
        """Return an event behind all that the stream for copies has to do now."""
        return self._recorded(self._stream)

    def last_use(self) -> Event:
        """Return an event behind all that the default stream has to do now."""
        return self._recorded(self._cuda.default_stream(self._device))

    def wait(self, event: Event) -> None:
        """Let the stream for copies wait for an event."""
        self._stream.wait_event(event)

    def _recorded(self, stream: Any) -> Event:
        with self._cuda.device(self._device):
            event: Event = self._cuda.Event(blocking=True)  # who waits sleeps, and leaves its core to others
            stream.record_event(event)
        return event


def find_index(name: str, hint: int | None = None) -> int:
    """Return the number that CUDA has given a GPU in this process; it initialises CUDA, and blocks.

    Args:
        name: its UUID.
        hint: the number that it probably has; believed for a part of a GPU, whose UUID CUDA does not tell.

    Raises:
        ConfigurationError: this process cannot see it, or CUDA does not work.
    """
    cuda: Any = torch.cuda  # as above
    try:
        count: int = cuda.device_count()
        if hint is not None and hint < count and not name.startswith("GPU-"):
            return hint
        uuids = [f"GPU-{cuda.get_device_properties(index).uuid}" for index in range(count)]
    except (RuntimeError, AssertionError) as error:
        raise ConfigurationError(f"CUDA does not work in this process: {error}") from error
    if name not in uuids:
        raise ConfigurationError(f"CUDA does not show {name} to this process; it shows {', '.join(uuids) or 'no GPU'}")
    return uuids.index(name)
