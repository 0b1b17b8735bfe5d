"""Which devices of a pool an engine is on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.gpu.devices.device import Device
from arl_tangram.model.gpu import Chunk


def chunk(name: str, dop: int, asked: Sequence[int | str] | None, devices: Sequence[Device]) -> Chunk:
    """Return the chunk of the devices that were asked for.

    Raises:
        ConfigurationError: there are no such devices, or they are no neighbours; the message says what there is.
    """
    names = [device.name for device in devices]
    there = ", ".join(f"{number}: {each}" for number, each in enumerate(names))
    if asked is None and len(devices) != dop:
        raise ConfigurationError(f"{name}: which devices is it on? devices= is needed, as the pool has {there}")
    numbers = sorted(_number(name, each, names, there) for each in (asked if asked is not None else range(dop)))
    first = numbers[0]
    if len(numbers) != dop or numbers != list(range(first, first + dop)) or first % dop:
        raise ConfigurationError(
            f"{name}: {dop} devices must stand beside each other, the first at a multiple of {dop}, not {numbers}; "
            f"the pool has {there}"
        )
    return Chunk(first, dop)


def _number(name: str, asked: int | str, names: Sequence[str], there: str) -> int:
    if isinstance(asked, int) and not isinstance(asked, bool) and 0 <= asked < len(names):
        return asked
    if isinstance(asked, str):
        with suppress(ValueError):
            return names.index(asked)
    raise ConfigurationError(f"{name}: there is no device {asked!r}; the pool has {there}")
