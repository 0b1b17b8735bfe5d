"""`CUDA_VISIBLE_DEVICES`: what a process sees by it, and what to tell a child that is to see certain devices. Pure.

The rules are CUDA's own: a list of numbers, or one of UUIDs, each of which may be cut short as long as one device alone
begins so. The first entry that names no device ends the list, and a list that names a device twice shows none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

VARIABLE = "CUDA_VISIBLE_DEVICES"
ORDER_VARIABLE = "CUDA_DEVICE_ORDER"
BY_BUS = "PCI_BUS_ID"
SLICE_PREFIX = "MIG-"
UUID_PREFIXES = ("GPU-", SLICE_PREFIX)

_NUMBER = re.compile(r"\s*\+?(\d+)")  # what follows the digits is ignored


def seen(told: str | None, gpus: Mapping[str, Sequence[str] | None]) -> list[str]:
    """Return the UUIDs of what a process can see, in the order in which CUDA numbers it there.

    A process cannot use two slices of MIG, nor a slice and a whole GPU: it sees the first slice alone. A GPU that is
    cut into slices is not seen as a whole, and one that MIG is on for, but that has no slices, not at all.

    Args:
        told: the value of the variable; None if it is not set, and then everything can be seen.
        gpus: the UUIDs of the GPUs of this machine in the order of its buses, with those of the slices of each; None
            where MIG is off.
    """
    named = list(gpus) if told is None else _listed(told, gpus)
    found: list[str] = []
    for name in named:
        slices = gpus.get(name)
        found += [name] if slices is None else slices
    return next(([uuid] for uuid in found if uuid.startswith(SLICE_PREFIX)), found)


def is_by_number(told: str | None) -> bool:
    """Whether the value names devices by their numbers."""
    return told is not None and _NUMBER.match(told) is not None


def environment(devices: Iterable[str]) -> dict[str, str]:
    """Return the variables of a child that is to see these devices, in this order, and no others.

    Args:
        devices: as `Device.name` names them. What is no GPU, such as `cpu:0`, is left out: a child that has nothing
            else sees no GPU.
    """
    return {VARIABLE: ",".join(name for name in devices if name.startswith(UUID_PREFIXES)), ORDER_VARIABLE: BY_BUS}


def _listed(told: str, gpus: Mapping[str, Sequence[str] | None]) -> list[str]:
    named: list[str] = []
    for entry in told.split(","):
        uuid = _by_number(entry, gpus) if is_by_number(told) else _by_uuid(entry.strip(), gpus)
        if uuid is None:
            break
        named.append(uuid)
    return named if len(set(named)) == len(named) else []


def _by_number(entry: str, gpus: Mapping[str, Sequence[str] | None]) -> str | None:
    matched = _NUMBER.match(entry)
    return list(gpus)[int(matched[1])] if matched and int(matched[1]) < len(gpus) else None


def _by_uuid(entry: str, gpus: Mapping[str, Sequence[str] | None]) -> str | None:
    """Return the UUID that begins so; None if none does, or more than one."""
    uuids = [*gpus, *(uuid for slices in gpus.values() for uuid in slices or ())]
    fitting = [uuid for uuid in uuids if uuid.startswith(entry)] if entry.startswith(UUID_PREFIXES) else []
    return fitting[0] if len(fitting) == 1 else None
