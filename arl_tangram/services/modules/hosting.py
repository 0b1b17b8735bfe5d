"""Make what a torch service is made of: load its modules, pack them, copy them for each of its instances. It blocks.

This is the module through which the rest of a torch service is imported, and torch with it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch

from arl_tangram.services.modules.calls import ResidentModule
from arl_tangram.services.modules.instance import ModuleInstance
from arl_tangram.services.modules.loading import Loaded, copy_module, load_module, takes_dop
from arl_tangram.services.modules.packing import checksums

__all__ = ["Loaded", "ModuleInstance", "ResidentModule", "checksums", "differing", "instances", "load", "pack"]


def load(function: Callable[..., object], what: str, dops: Sequence[int]) -> dict[int, Loaded]:
    """Call `load` once, or once for each dop if it takes that as an argument; the dops may share what it returned.

    Raises:
        ConfigurationError: it raises, or returns something that cannot be hosted.
    """
    if takes_dop(function):
        loads: dict[int, Loaded] = {}
        for dop in dops:
            loads[dop] = load_module(function, what, dop, loads)
        return loads
    return dict.fromkeys(dops, load_module(function, what, None))


def pack(loaded: Loaded, sources: Sequence[torch.Tensor]) -> None:
    """Move the bytes of what was loaded to host memory; what they lay in before is let go of."""
    for packing, source in zip(loaded.packings, sources, strict=True):
        packing.pack(source[: packing.size_bytes])
    # glibc keeps what was freed in pieces below 32 MiB, as it may be wanted again: in the worst case all of the module.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def instances(
    name: str,
    what: str,
    loads: Mapping[int, Loaded],
    sources: Mapping[int, Sequence[torch.Tensor]],
    max_concurrency: int,
) -> dict[int, ModuleInstance]:
    """Make the instance of each dop out of packed modules: a copy for each device of each instance.

    Raises:
        ConfigurationError: a module cannot be copied.
    """
    copies: dict[int, list[Loaded]] = {dop: [] for dop in loads}
    used: set[int] = set()
    for dop, loaded in loads.items():  # all copies are made before any instance, whose modules refuse to be called
        for _ in range(1 if loaded.spread else dop):
            copies[dop].append(copy_module(loaded, what) if id(loaded) in used else loaded)
            used.add(id(loaded))
    return {
        dop: ModuleInstance(
            name,
            made,
            sources[dop] if loads[dop].spread else [sources[dop][0]] * dop,
            max_concurrency=max_concurrency,
        )
        for dop, made in copies.items()
    }


def differing(memory: torch.Tensor, sums: torch.Tensor) -> int:
    """Return how many MiB of the memory of a device differ, by their sums, from what was copied to it."""
    with _beside_models(memory.device):
        return int((checksums(memory).to("cpu") != sums).sum())


def _beside_models(device: torch.device) -> AbstractContextManager[object]:
    """Use a stream of its own: on that of the models, it would wait for whatever they have to compute."""
    if device.type != "cuda":
        return nullcontext()
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return torch.cuda.stream(stream)
