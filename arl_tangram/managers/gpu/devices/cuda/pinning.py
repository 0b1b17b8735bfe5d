"""Host memory that GPUs read at the full speed of their link: registered with CUDA, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any

from arl_tangram.managers.gpu.extra import need_torch

PIN_BYTES = 1 << 30
"""Pieces end at multiples of this address, so that who copies can tell where: a copy should not span two registrations.
Registering half a TiB at once fails on drivers from R580 on, and the interpreter may stand still while a piece is
registered, for about 0.1 s per GiB."""

_PORTABLE = 1  # cudaHostRegisterPortable: for all GPUs, not for the current one alone


class CudaPinner:
    """Pins memory with `cudaHostRegister`.

    Args:
        device: one that this process uses anyway, as torch calls it: whoever calls the runtime initialises the current
            device of its thread, which takes memory there.
        cudart: the CUDA runtime as torch shows it; None for that of torch, which is initialised when it is first used.
    """

    def __init__(self, device: str, *, cudart: Any = None) -> None:  # a module of torch's C++ part, without types
        self._device = device
        self._cudart = cudart

    def pin(self, address: int, size: int) -> None:
        """Pin memory; it blocks.

        Raises:
            OSError: it cannot be pinned; none of it is.
            MissingExtraError: torch is not installed.
        """
        done: list[int] = []
        with self._current():
            for start, length in pieces(address, size, PIN_BYTES):
                error = self._runtime().cudaHostRegister(start, length, _PORTABLE)
                if int(error):
                    for registered in done:
                        self._runtime().cudaHostUnregister(registered)
                    raise OSError(f"cudaHostRegister of {length:,} bytes: {self._reason(error)}")
                done.append(start)

    def unpin(self, address: int, size: int) -> None:
        """Undo it; never raises."""
        with suppress(Exception), self._current():  # a driver that has failed: there is nothing left to undo
            for start, _ in pieces(address, size, PIN_BYTES):
                self._runtime().cudaHostUnregister(start)

    def _current(self) -> AbstractContextManager[object]:
        need_torch()
        import torch  # noqa: PLC0415 - an extra

        return torch.cuda.device(self._device)

    def _runtime(self) -> Any:
        if self._cudart is None:
            need_torch()
            import torch  # noqa: PLC0415 - an extra

            cuda: Any = torch.cuda  # parts of it have no types
            self._cudart = cuda.cudart()
        return self._cudart

    def _reason(self, error: Any) -> str:
        return f"{self._runtime().cudaGetErrorString(error)} ({int(error)})"


def pieces(address: int, size: int, piece_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield address and size of the parts that memory has between multiples of a size."""
    end = address + size
    while address < end:
        border = min(end, (address // piece_bytes + 1) * piece_bytes)
        yield address, border - address
        address = border
