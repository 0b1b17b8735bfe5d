"""Finds the GPUs that this process may use, and says why not where there are none or some are left out. Blocks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.gpu.discovery.nvml import Card, Library, NoGpusError, Nvml, opened
from arl_tangram.managers.gpu.discovery.proximity import nearest_first
from arl_tangram.managers.gpu.discovery.visible import BY_BUS, ORDER_VARIABLE, VARIABLE, is_by_number, seen
from arl_tangram.model.quantities import GIB

WORTH_TELLING_BYTES = GIB  # less is what a driver keeps for itself


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that this process may use, or a slice of one that MIG makes.

    Attributes:
        uuid: by which it is known outside.
        name: what it is called, such as `NVIDIA H200`.
        total_bytes: its memory.
        free_bytes: what of that nobody used when it was looked at, this process included.
        numa_node: the node of the machine that it is at; None if there are none.
        cuda_index: the number that CUDA gives it in this process; None where GPUs differ and CUDA counts from the
            fastest one on, as it does unless `CUDA_VISIBLE_DEVICES` lists UUIDs or `CUDA_DEVICE_ORDER=PCI_BUS_ID`.
        parent: of a slice, the UUID of its GPU.
    """

    uuid: str
    name: str
    total_bytes: int
    free_bytes: int
    numa_node: int | None
    cuda_index: int | None
    parent: str = ""


@dataclass(frozen=True, slots=True)
class FoundGpus:
    """What was found.

    Attributes:
        gpus: neighbours are near each other, first by NVLink, then by PCIe.
        reason: why there are none; empty if there are some.
        notes: what is left out, or in use by others, in words.
        driver: its version; empty if there is none.
    """

    gpus: tuple[Gpu, ...]
    reason: str = ""
    notes: tuple[str, ...] = ()
    driver: str = ""


def find_gpus(
    environ: Mapping[str, str] | None = None, library: Library | None = None, root: Path = Path("/")
) -> FoundGpus:
    """Find the GPUs that this process may use. No driver means that there are none, and is no error.

    Args:
        environ: the environment that says what this process sees; its own by default.
        library: the module `pynvml`, imported by default.
        root: stands before the paths that are read.

    Raises:
        MissingExtraError: nvidia-ml-py is not installed.
        ConfigurationError: there is a driver, and it does not work, or it cannot be told which GPUs are meant.
    """
    environ = os.environ if environ is None else environ
    try:
        with opened(library, root) as nvml:
            return _look(nvml, environ)
    except NoGpusError as error:
        return FoundGpus((), str(error))


def choose(found: FoundGpus, wanted: Sequence[str]) -> tuple[Gpu, ...]:
    """Return the GPUs that were asked for, in the order of `found.gpus`.

    Args:
        found: what there is.
        wanted: UUIDs, which may be cut short as long as one GPU alone begins so, or `cuda:0` and so on.

    Raises:
        ConfigurationError: there is none of that name, or it is asked for twice; the message says which there are.
    """
    chosen = [_named(found, name) for name in wanted]
    for uuid in {gpu.uuid for gpu in chosen}:
        names = [name for name, gpu in zip(wanted, chosen, strict=True) if gpu.uuid == uuid]
        if len(names) > 1:
            raise ConfigurationError(f"the GPU {uuid} is asked for twice: {', '.join(names)}")
    return tuple(gpu for gpu in found.gpus if gpu in chosen)


def _named(found: FoundGpus, name: str) -> Gpu:
    number = name.removeprefix("cuda:")
    fitting = [
        gpu
        for gpu in found.gpus
        if (gpu.uuid.startswith(name) and name) or (number != name and number == str(gpu.cuda_index))
    ]
    if len(fitting) == 1:
        return fitting[0]
    has = ", ".join(
        f"{gpu.uuid} ({'' if gpu.cuda_index is None else f'cuda:{gpu.cuda_index}, '}{gpu.name})" for gpu in found.gpus
    )
    there = f"this process sees {has}" if has else f"this process sees no GPU: {found.reason}"
    if number != name and any(gpu.cuda_index is None for gpu in found.gpus):
        there += f"; they differ, so CUDA numbers them as it likes unless {ORDER_VARIABLE}={BY_BUS} is set"
    raise ConfigurationError(f"{'no' if not fitting else 'more than one'} GPU is called {name!r}; {there}")


def _look(nvml: Nvml, environ: Mapping[str, str]) -> FoundGpus:
    told = environ.get(VARIABLE)
    driver = nvml.driver()
    # What cannot be read keeps its number, so that those behind it keep theirs.
    cards = {card.uuid or f"({card.fault})": card for card in nvml.cards()}
    if not cards:
        return FoundGpus((), f"the NVIDIA driver {driver} is there, and tells of no GPU", driver=driver)
    uuids = seen(told, {name: _slice_uuids(card) for name, card in cards.items()})
    whole = {uuid: card for uuid, card in cards.items() if uuid in uuids}
    for name, card in whole.items():
        if card.fault:
            raise ConfigurationError(f"NVML does not tell about {name}; leave it out with {VARIABLE}, or reset it")
    if told is not None and is_by_number(told):
        _check_numbers(nvml, cards, environ)
    parents = {each.uuid: card for card in cards.values() for each in card.slices or ()}
    ordered = told is not None or environ.get(ORDER_VARIABLE) == BY_BUS or len(uuids) == 1
    is_known = ordered or len({nvml.model(card) for card in whole.values()}) == 1
    gpus = [
        _gpu(nvml, whole.get(uuid) or _piece(parents[uuid], uuid), parents.get(uuid), index if is_known else None)
        for index, uuid in enumerate(uuids)
    ]
    near = nearest_first(gpus, lambda one, other: nvml.distance(whole[one.uuid], whole[other.uuid]))
    reason = "" if gpus else _why_none(told, cards)
    return FoundGpus(tuple(near), reason, tuple(_notes(told, cards, gpus)), driver)


def _slice_uuids(card: Card) -> list[str] | None:
    return None if card.slices is None else [each.uuid for each in card.slices]


def _piece(card: Card, uuid: str) -> Card:
    return next(each for each in card.slices or () if each.uuid == uuid)


def _gpu(nvml: Nvml, card: Card, parent: Card | None, index: int | None) -> Gpu:
    try:
        memory = nvml.memory(card.uuid)
    except OSError as error:
        raise ConfigurationError(f"{error}; leave it out with {VARIABLE}") from error
    return Gpu(
        uuid=card.uuid,
        name=nvml.model(card),
        total_bytes=memory.total_bytes,
        free_bytes=memory.free_bytes,
        numa_node=nvml.numa_node(parent or card),
        cuda_index=index,
        parent=parent.uuid if parent else "",
    )


def _check_numbers(nvml: Nvml, cards: Mapping[str, Card], environ: Mapping[str, str]) -> None:
    """Refuse numbers where CUDA counts from the fastest GPU on: the order of the others is not told."""
    models = dict.fromkeys(nvml.model(card) for card in cards.values() if not card.fault)
    if len(models) > 1 and environ.get(ORDER_VARIABLE) != BY_BUS:
        raise ConfigurationError(
            f"{VARIABLE}={environ.get(VARIABLE)!r} names GPUs by number, and the GPUs of this machine differ "
            f"({', '.join(models)}): name them by UUID, or set {ORDER_VARIABLE}={BY_BUS}"
        )


def _why_none(told: str | None, cards: Mapping[str, Card]) -> str:
    if told is not None:
        return f"{VARIABLE}={told!r} shows none of the {_count(len(cards))} of this machine"
    return f"MIG is on for the {_count(len(cards))} of this machine, and there are no slices"


def _notes(told: str | None, cards: Mapping[str, Card], gpus: Sequence[Gpu]) -> list[str]:
    notes: list[str] = []
    slices = sum(len(card.slices or ()) for card in cards.values())
    if gpus and gpus[0].parent:
        notes.append(f"a process can use one slice of MIG and nothing else: this one {gpus[0].uuid}, of {slices}")
    elif gpus and len(gpus) < len(cards):
        why = f"{VARIABLE}={told!r}" if told is not None else "MIG without slices"
        notes.append(f"{why}: {len(gpus)} of the {_count(len(cards))} of this machine can be used")
    notes += [
        f"{gpu.uuid}: {(gpu.total_bytes - gpu.free_bytes) / GIB:.1f} of {gpu.total_bytes / GIB:.1f} GiB are in use"
        for gpu in gpus
        if gpu.total_bytes - gpu.free_bytes > WORTH_TELLING_BYTES
    ]
    return notes


def _count(number: int) -> str:
    return f"{number} GPU" if number == 1 else f"{number} GPUs"
