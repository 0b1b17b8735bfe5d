"""Models behind services of workloads: what one needs on its GPUs, and what a restore takes."""

from __future__ import annotations

from collections.abc import Sequence

from arl_tangram.errors import ConfigurationError
from arl_tangram.model.gpu import Footprint, HostedService, checked_dops
from arl_tangram.model.quantities import bytes_of_gib, service_name, whole


def model_service(
    name: str,
    *,
    weights_gib: float,
    work_gib: float,
    dops: Sequence[int],
    max_concurrency: int,
    copy_gb_per_s: float,
    wake_s: float,
) -> HostedService:
    """Return a model whose weights are shared out evenly to its GPUs; each of them copies its own part at once.

    Args:
        name: by which actions ask for it.
        weights_gib: of all its weights.
        work_gib: what it needs besides on each GPU, for activations and caches.
        dops: on how many GPUs it can be.
        max_concurrency: calls that may use an instance at once.
        copy_gb_per_s: from host memory to each GPU.
        wake_s: what a restore takes besides.

    Raises:
        ConfigurationError: a value that is not possible.
    """
    service_name(name, "name", ConfigurationError)
    weights = bytes_of_gib(weights_gib, f"{name}: weights_gib", ConfigurationError)
    work = bytes_of_gib(work_gib, f"{name}: work_gib", ConfigurationError)
    concurrency = whole(max_concurrency, f"{name}: max_concurrency", ConfigurationError, least=1)
    footprints: list[tuple[int, Footprint]] = []
    restore_s: list[tuple[int, float]] = []
    for dop in checked_dops(dops, name):
        part = -(-weights // dop)
        footprints.append((dop, Footprint(part + work, part + work)))
        restore_s.append((dop, part / (copy_gb_per_s * 1e9) + wake_s))
    return HostedService(name, tuple(footprints), tuple(restore_s), concurrency)
