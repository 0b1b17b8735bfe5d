"""A GPU of NVIDIA as a device: one arena, and a stream for copies, which waits for nothing that models compute."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.gpu.devices.arena_device import ArenaDevice
from arl_tangram.managers.gpu.devices.device import Region
from arl_tangram.managers.gpu.devices.off_loop import Line
from arl_tangram.managers.gpu.extra import need_torch

if TYPE_CHECKING:
    import torch

    from arl_tangram.managers.gpu.devices.cuda.memory import CudaMemory

T = TypeVar("T")

POISON = 0xFF


class CudaDevice(ArenaDevice):
    """A GPU. Models run on its default stream; who frees a region has waited for what used it.

    Args:
        name: its UUID.
        torch_name: what torch calls it.
        capacity_bytes: of its arena.
        memory: its bytes.
        line: does what blocks.
        poison: whether free memory is overwritten, for tests.
    """

    def __init__(
        self, name: str, torch_name: str, capacity_bytes: int, memory: CudaMemory, line: Line, *, poison: bool = False
    ) -> None:
        super().__init__(name, torch_name, capacity_bytes)
        self._memory = memory
        self._line = line
        self._poison = poison

    @classmethod
    async def open(
        cls,
        name: str,
        capacity_bytes: int,
        *,
        cuda_index: int | None = None,
        vacated: bool = False,
        poison: bool = False,
    ) -> CudaDevice:
        """Initialise CUDA and allocate the arena, off the loop.

        Args:
            name: UUID of the GPU, or of a part of one.
            capacity_bytes: of its arena; something must be left for what models compute and for CUDA itself.
            cuda_index: the number that it probably has for CUDA in this process.
            vacated: whether its memory is left to others until `occupy`.
            poison: whether free memory is overwritten, for tests.

        Raises:
            ConfigurationError: this process cannot see it, CUDA does not work, or the arena does not fit.
            MissingExtraError: torch is not installed.
        """

        def begin() -> tuple[str, CudaMemory]:
            need_torch()
            from arl_tangram.managers.gpu.devices.cuda.calls import TorchCuda, find_index  # noqa: PLC0415 - they import torch
            from arl_tangram.managers.gpu.devices.cuda.memory import CudaMemory  # noqa: PLC0415

            index = find_index(name, cuda_index)
            try:
                return f"cuda:{index}", CudaMemory(TorchCuda(index), capacity_bytes, vacated=vacated)
            except RuntimeError as error:
                raise ConfigurationError(f"{name} has no {capacity_bytes:,} bytes for services: {error}") from error

        line = Line()
        try:
            torch_name, memory = await line.run(lambda _: begin())
        except BaseException:
            await line.aclose()
            raise
        device = cls(name, torch_name, capacity_bytes, memory, line, poison=poison)
        device._is_vacated = vacated
        return device

    @property
    def holds_all(self) -> bool:
        """The whole arena is one allocation of CUDA."""
        return True

    def view(self, region: Region) -> torch.Tensor:
        """Return the bytes of a region as a tensor."""
        self._check_taken(region)
        return self._memory.view(region)

    async def aclose(self) -> None:
        """Wait for what is on its way, and give the arena back."""
        await self._line.aclose(self._memory.vacate)

    async def _copy_in(self, region: Region, source: torch.Tensor) -> None:
        await self._line.run(lambda stop: _as_os_error(lambda: self._memory.copy_in(region, source, stop)))

    async def _move(self, source: Region, target: Region) -> None:
        await self._line.run(lambda _: _as_os_error(lambda: self._memory.move(source, target)))

    async def _vacate(self) -> None:
        await self._line.run(lambda _: _as_os_error(self._memory.vacate))

    async def _occupy(self) -> None:
        await self._line.run(lambda _: _as_os_error(self._memory.occupy))

    def _taken(self, start: int, stop: int) -> None:
        """Copies wait for each other by themselves, in their stream."""

    def _freed(self, start: int, stop: int) -> None:
        if self._poison:
            with suppress(RuntimeError):  # the GPU has failed: nothing runs there any more, and the next copy says so
                self._memory.fill(start, stop, POISON)


def _as_os_error(work: Callable[[], T]) -> T:
    """Do something with CUDA; what it fails with is an OSError."""
    try:
        return work()
    except RuntimeError as error:
        raise OSError(f"CUDA: {error}") from error
