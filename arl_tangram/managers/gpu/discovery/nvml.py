"""NVIDIA's management library: which GPUs this process may use, by UUID, and how much memory of each is free.

It is asked through `pynvml`, which the package nvidia-ml-py provides. Everything here blocks: a first call can take
seconds, as the driver starts up where nothing keeps it loaded.
"""

# ruff: noqa: N802, N803 - the names are the library's

from __future__ import annotations

import importlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from arl_tangram.errors import ConfigurationError, MissingExtraError

# nvml.h; these numbers never change.
_UNINITIALIZED, _NO_PERMISSION, _NOT_FOUND, _NO_DRIVER, _NO_LIBRARY, _MISMATCH = 1, 4, 6, 9, 12, 18
_OK = 0
_NVLINK = 2
_NOT_LINKED = 1000.0  # more than any level of the topology
_LEVEL_NODE, _LEVEL_SYSTEM = 40, 50

_NO_GPUS = {
    _NO_LIBRARY: "there is no NVIDIA driver (its library libnvidia-ml.so.1 cannot be loaded)",
    _NO_DRIVER: "the NVIDIA driver is installed, and its kernel module is not loaded",
    _NO_PERMISSION: "this process may not use the NVIDIA driver",
}


class Library(Protocol):
    """What is used of the module `pynvml`. Handles are its own; every call may raise its `NVMLError`."""

    NVMLError: type[Exception]

    def nvmlInit(self) -> None: ...  # noqa: D102
    def nvmlShutdown(self) -> None: ...  # noqa: D102
    def nvmlSystemGetDriverVersion(self) -> str: ...  # noqa: D102
    def nvmlDeviceGetCount(self) -> int: ...  # noqa: D102
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any: ...  # noqa: D102
    def nvmlDeviceGetUUID(self, handle: Any) -> str: ...  # noqa: D102
    def nvmlDeviceGetName(self, handle: Any) -> str: ...  # noqa: D102
    def nvmlDeviceGetPciInfo(self, handle: Any) -> Any: ...  # noqa: D102
    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any: ...  # noqa: D102
    def nvmlDeviceGetMigMode(self, handle: Any) -> Sequence[int]: ...  # noqa: D102
    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> int: ...  # noqa: D102
    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Any, index: int) -> Any: ...  # noqa: D102
    def nvmlDeviceGetTopologyCommonAncestor(self, device1: Any, device2: Any) -> int: ...  # noqa: D102
    def nvmlDeviceGetP2PStatus(self, device1: Any, device2: Any, p2pIndex: int) -> int: ...  # noqa: D102


class NoGpusError(ConfigurationError):
    """There is no driver to ask; the message says why. The same as a machine without GPUs."""


class Memory(NamedTuple):
    """The memory of one device, in bytes; what is not free is in use by somebody, the driver included."""

    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU of this machine, or a slice of one that MIG makes.

    Attributes:
        uuid: of it; empty if it could not be read.
        handle: the library's.
        slices: of a GPU, those that there are; None where MIG is off.
        fault: why it could not be read.
    """

    uuid: str
    handle: Any = field(compare=False, repr=False)
    slices: tuple[Card, ...] | None = None
    fault: str = ""


class Nvml:
    """The library, open.

    Args:
        library: the module.
        root: stands before the paths that are read.

    Raises:
        NoGpusError: there is no driver.
        ConfigurationError: there is one, and it does not work.
    """

    def __init__(self, library: Library, root: Path = Path("/")) -> None:
        self._library = library
        self._root = root
        try:
            library.nvmlInit()
        except library.NVMLError as error:
            raise _unusable(error) from error
        self._handles: dict[str, Any] = {}
        self._open = True

    def driver(self) -> str:
        """Return the version of the driver."""
        return self._library.nvmlSystemGetDriverVersion()

    def cards(self) -> list[Card]:
        """Return the GPUs of this machine in the order of its buses, those that cannot be used by anybody included."""
        return [self._card(index) for index in range(self._library.nvmlDeviceGetCount())]

    def model(self, card: Card) -> str:
        """Return what it is called, such as `NVIDIA H200`."""
        return self._library.nvmlDeviceGetName(card.handle)

    def memory(self, uuid: str) -> Memory:
        """Return the memory of a device, as it is now.

        Raises:
            OSError: it cannot be told; the message says why.
        """
        try:
            if not self._open:
                raise OSError(f"the memory of {uuid} cannot be told: NVML was closed")
            if uuid not in self._handles:
                self.cards()
            if uuid not in self._handles:
                raise OSError(f"the memory of {uuid} cannot be told: there is no such device")
            told = self._library.nvmlDeviceGetMemoryInfo(self._handles[uuid])
        except self._library.NVMLError as error:
            raise OSError(f"the memory of {uuid} cannot be told: {error}") from error
        return Memory(int(told.total), int(told.free))

    def numa_node(self, card: Card) -> int | None:
        """Return the NUMA node of the machine that a GPU is at; None if it is at none, or that cannot be told."""
        # `nvmlDeviceGetNumaNodeId` is about GPUs that are NUMA nodes themselves.
        try:
            bus = self._library.nvmlDeviceGetPciInfo(card.handle).busId
            domain, _, rest = (bus.decode() if isinstance(bus, bytes) else str(bus)).lower().partition(":")
            node = int((self._root / f"sys/bus/pci/devices/{domain[-4:]}:{rest}/numa_node").read_text())
        except (self._library.NVMLError, OSError, ValueError):
            return None
        return node if node >= 0 else None

    def distance(self, one: Card, other: Card) -> float:
        """Return how far two GPUs are from each other: those with NVLink between them are nearest, then by PCIe."""
        library = self._library
        try:
            linked = library.nvmlDeviceGetP2PStatus(one.handle, other.handle, _NVLINK) == _OK
        except library.NVMLError:
            linked = False
        try:
            level = library.nvmlDeviceGetTopologyCommonAncestor(one.handle, other.handle)
        except library.NVMLError:
            same = self.numa_node(one) == self.numa_node(other)
            level = _LEVEL_NODE if same else _LEVEL_SYSTEM
        return level + (0.0 if linked else _NOT_LINKED)

    def close(self) -> None:
        """Let go of it; never raises."""
        if self._open:
            self._open = False
            try:
                self._library.nvmlShutdown()
            except self._library.NVMLError:
                return  # the driver has gone away

    def _card(self, index: int) -> Card:
        try:
            handle = self._library.nvmlDeviceGetHandleByIndex(index)
            card = Card(self._library.nvmlDeviceGetUUID(handle), handle, self._slices(handle))
        except self._library.NVMLError as error:
            return Card("", None, None, f"GPU {index}: {error}")
        for each in (card, *(card.slices or ())):
            self._handles[each.uuid] = each.handle
        return card

    def _slices(self, handle: Any) -> tuple[Card, ...] | None:
        library = self._library
        try:
            if not library.nvmlDeviceGetMigMode(handle)[0]:
                return None
            count = library.nvmlDeviceGetMaxMigDeviceCount(handle)
        except library.NVMLError:
            return None  # it cannot be cut into slices
        found: list[Card] = []
        for index in range(count):
            try:
                piece = library.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            except library.NVMLError as error:
                if _code(error) == _NOT_FOUND:
                    continue  # numbers of slices that were removed stay free
                raise
            found.append(Card(library.nvmlDeviceGetUUID(piece), piece))
        return tuple(found)


@contextmanager
def opened(library: Library | None = None, root: Path = Path("/")) -> Generator[Nvml]:
    """Open the library and close it again; for the errors see `open_nvml`.

    Raises:
        ConfigurationError: it does not work (any more); the message says why.
    """
    library = library or load()
    nvml = Nvml(library, root)
    try:
        yield nvml
    except library.NVMLError as error:
        raise _unusable(error) from error
    finally:
        nvml.close()


def open_nvml() -> Nvml:
    """Open the library; whoever has it closes it.

    Raises:
        MissingExtraError: the module is not installed.
        NoGpusError: there is no driver.
        ConfigurationError: there is one, and it does not work.
    """
    return Nvml(load())


def load() -> Library:
    """Return the module; raises MissingExtraError if it is not installed."""
    try:
        return cast(Library, importlib.import_module("pynvml"))
    except ImportError as error:
        raise MissingExtraError("GPUs are found with nvidia-ml-py: pip install 'arl-tangram[gpu]'") from error


def has_driver(root: Path = Path("/")) -> bool:
    """Whether the kernel module of NVIDIA's driver is loaded, told without the library."""
    return (root / "proc/driver/nvidia/version").exists()


def _code(error: Exception) -> int:
    return int(getattr(error, "value", -1))


def _unusable(error: Exception) -> ConfigurationError:
    code = _code(error)
    if code in _NO_GPUS:
        return NoGpusError(_NO_GPUS[code])
    if code == _MISMATCH:
        return ConfigurationError(
            "the NVIDIA driver and its kernel module are of different versions: the driver was updated; "
            "reload the kernel module, or restart the machine"
        )
    return ConfigurationError(f"NVML does not tell about GPUs: {error} (code {code})")
