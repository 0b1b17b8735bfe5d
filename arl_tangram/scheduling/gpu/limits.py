"""Say whether an action could ever sit, or what it asks for and what there is.

What a device has less for the moment does not count: who needs that waits until it is there again.
"""

from __future__ import annotations

from collections.abc import Iterator

from arl_tangram.errors import InfeasibleError
from arl_tangram.model.gpu import CHUNK_SIZES, Chunk, Instance
from arl_tangram.model.quantities import GIB
from arl_tangram.scheduling.gpu.chunks import Chunks
from arl_tangram.scheduling.gpu.request import SeatRequest
from arl_tangram.scheduling.gpu.residency import Residency


def check_seat(request: SeatRequest, residency: Residency, chunks: Chunks, name: str) -> None:
    """Refuse what can never sit on the devices that there are now.

    Raises:
        InfeasibleError: with what is asked, and what there is.
    """
    if request.service is None:
        _check_devices(request, residency, chunks, name)
        return
    service = residency.services.get(request.service)
    if service is None:
        known = ", ".join(map(repr, sorted(residency.services)))
        raise InfeasibleError(
            f"{name} asks for the service {request.service!r}; this runtime has "
            + (f"only {known}" if known else "no services")
        )
    unknown = [dop for dop in request.dops if dop not in service.dops]
    if unknown or not request.dops:
        raise InfeasibleError(
            f"{name} asks for {request.service!r} on {_devices(request.dops)}; it is there on {_in_words(service.dops)}"
        )
    fitting = set(fitting_dops(request.service, residency, chunks))
    if not fitting.intersection(request.dops):
        raise InfeasibleError(_too_large(request, residency, chunks, name))


def fitting_dops(service: str, residency: Residency, chunks: Chunks) -> Iterator[int]:
    """Yield the numbers of devices on which a service fits somewhere, alone."""
    hosted = residency.services[service]
    for dop in hosted.dops:
        instance = Instance(service, dop)
        if any(residency.fits(instance, chunk, residency.declared) for chunk in chunks.of(hosted, dop)):
            yield dop


def _check_devices(request: SeatRequest, residency: Residency, chunks: Chunks, name: str) -> None:
    if not request.dops or any(dop not in CHUNK_SIZES for dop in request.dops):
        raise InfeasibleError(f"{name} asks for {_devices(request.dops)}; a body can have {_in_words(CHUNK_SIZES)}")
    for dop in request.dops:
        if any(_least_left(chunk, residency) is not None for chunk in chunks.of_size(dop)):
            return
    raise InfeasibleError(f"{name} asks for {_devices(request.dops)} of one node; {_most(residency, chunks)}")


def _too_large(request: SeatRequest, residency: Residency, chunks: Chunks, name: str) -> str:
    """Say why a service fits nowhere on any of these numbers of devices."""
    assert request.service is not None
    dop = request.dops[-1]
    hosted = residency.services[request.service]
    asked = f"{name} asks for {request.service!r}"
    left = [left for chunk in chunks.of(hosted, dop) if (left := _least_left(chunk, residency)) is not None]
    if not left:
        return f"{asked} on {_devices(request.dops)} of one node; {_most(residency, chunks)}"
    instance = Instance(request.service, dop)
    needed = residency.footprints[instance].peak_bytes
    most = max(left) + needed - residency.needs(instance)
    each = "on a device" if dop == 1 else f"on each of {dop} devices"
    there = f"there are at most {most / GIB:g} GiB"
    return f"{asked}, which needs {needed / GIB:g} GiB {each} while it is restored; {there}"


def _least_left(chunk: Chunk, residency: Residency) -> int | None:
    """Return what one instance could take of each device of a chunk; None if one of them is away."""
    left = [residency.left(device, residency.declared) for device in chunk.devices]
    return min([size for size in left if size is not None]) if None not in left else None


def _most(residency: Residency, chunks: Chunks) -> str:
    """Say how many devices are there together."""
    sizes = [n for n in CHUNK_SIZES if any(_least_left(chunk, residency) is not None for chunk in chunks.of_size(n))]
    return f"there are at most {sizes[-1]} together" if sizes else "there are none now"


def _in_words(numbers: tuple[int, ...]) -> str:
    *most, last = map(str, numbers or (0,))
    return f"{', '.join(most)} or {last}" if most else last


def _devices(numbers: tuple[int, ...]) -> str:
    return f"{_in_words(numbers)} {'device' if numbers == (1,) else 'devices'}"
