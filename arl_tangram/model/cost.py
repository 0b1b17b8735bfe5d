"""The cost vector: what one call of an action takes, in integer units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from arl_tangram.errors import DefinitionError
from arl_tangram.model.elasticity import Elastic
from arl_tangram.model.gpu import CHUNK_SIZES
from arl_tangram.model.quantities import MILLI, bytes_of_gib, quota_name, service_name, thousandths, whole


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """What one call of an action takes of a quota, where a number of calls does not say it all.

    Attributes:
        calls: calls, above 0, to a thousandth.
        tokens: tokens to reserve, from 0: an upper estimate. The body settles what it really used.
    """

    calls: float = 1
    tokens: float = 0


@dataclass(frozen=True, slots=True)
class Cost:
    """What one call takes.

    Attributes:
        cpu: milli-cores, or an `Elastic` in whole cores; 0 for none.
        memory_bytes: bytes of host memory; 0 for none.
        quota: pairs of a quota's name and thousandths of a call, sorted by name.
        tokens: pairs of a quota's name and thousandths of a token, for those with more than none, sorted by name.
        service: the name of the service that it uses, or None.
        gpu: GPUs that it has to itself: a number that chunks can have, or an `Elastic` of such; 0 for none.
    """

    cpu: int | Elastic = 0
    memory_bytes: int = 0
    quota: tuple[tuple[str, int], ...] = ()
    tokens: tuple[tuple[str, int], ...] = ()
    service: str | None = None
    gpu: int | Elastic = 0

    @property
    def gpus(self) -> tuple[int, ...]:
        """How many GPUs it may have to itself, ascending; none if it has none."""
        if isinstance(self.gpu, Elastic):
            return self.gpu.options
        return (self.gpu,) if self.gpu else ()

    @property
    def minimum_cpu(self) -> int:
        """Milli-cores that the action needs at least."""
        return self.cpu.minimum * MILLI if isinstance(self.cpu, Elastic) else self.cpu


def declare_cost(
    name: str,
    *,
    cpu: float | Elastic = 0,
    memory_gib: float | Elastic = 0,
    quota: Mapping[str, float | QuotaUse | Elastic] | None = None,
    service: str | None = None,
    gpu: int | Elastic = 0,
) -> Cost:
    """Check a declared cost and return it in integer units.

    Raises:
        DefinitionError: two elastic resources, or an amount that is negative, not finite, finer
            than a thousandth, or (for the calls of a quota) zero; a number of GPUs that is not 1, 2, 4 or 8, or that is
            to change while the action runs; a service and GPUs of its own, or one of them beside elastic cores.
    """
    quotas = _mapping(name, quota)
    amounts: dict[str, object] = {"cpu": cpu, "memory_gib": memory_gib, "gpu": gpu}
    amounts.update({f"quota[{key!r}]": value for key, value in quotas.items()})
    elastic = [what for what, amount in amounts.items() if isinstance(amount, Elastic)]
    if len(elastic) > 1:
        raise DefinitionError(f"{name}: at most one resource may be Elastic, not {' and '.join(elastic)}")
    if elastic and elastic[0] not in ("cpu", "gpu"):
        raise DefinitionError(f"{name}: only cpu= and gpu= can be Elastic, not {elastic[0]}")
    gpus = _gpus(name, gpu)
    _check_seat(name, cpu, service, gpus)
    calls: list[tuple[str, int]] = []
    tokens: list[tuple[str, int]] = []
    for key, value in sorted(quotas.items()):
        what = f"{name}: quota[{key!r}]"
        use = value if isinstance(value, QuotaUse) else QuotaUse(cast(float, value))
        amount = thousandths(use.calls, what, DefinitionError)
        if amount == 0:
            raise DefinitionError(f"{what} must be more than 0")
        quota_of = quota_name(key, name, DefinitionError)
        calls.append((quota_of, amount))
        reserved = thousandths(use.tokens, f"{what}: tokens", DefinitionError)
        if reserved:
            tokens.append((quota_of, reserved))
    return Cost(
        cpu=cpu if isinstance(cpu, Elastic) else thousandths(cpu, f"{name}: cpu", DefinitionError),
        memory_bytes=bytes_of_gib(memory_gib, f"{name}: memory_gib", DefinitionError),
        quota=tuple(calls),
        tokens=tuple(tokens),
        service=None if service is None else service_name(service, f"{name}: service=", DefinitionError),
        gpu=gpus,
    )


def _gpus(name: str, gpu: object) -> int | Elastic:
    """Return the numbers of GPUs that chunks can have: of a range, those in it."""
    if not isinstance(gpu, Elastic):
        gpus = whole(gpu, f"{name}: gpu", DefinitionError, least=0, most=CHUNK_SIZES[-1])
        if gpus and gpus not in CHUNK_SIZES:
            raise DefinitionError(f"{name}: gpu= takes 1, 2, 4 or 8, not {gpus}")
        return gpus
    if gpu.resizable:
        raise DefinitionError(f"{name}: gpu=Elastic(..., resizable=True): only cores can change while an action runs")
    for gpus in gpu.options if gpu.exact else (gpu.minimum, gpu.maximum):
        if gpus not in CHUNK_SIZES:
            raise DefinitionError(f"{name}: gpu=Elastic(...) takes 1, 2, 4 and 8, not {gpus}")
    return Elastic.of(*[gpus for gpus in gpu.options if gpus in CHUNK_SIZES], speedup=gpu.speedup)


def _check_seat(name: str, cpu: object, service: object, gpus: int | Elastic) -> None:
    if service is not None and gpus:
        raise DefinitionError(f"{name}: service= and gpu= exclude each other: a service brings its GPUs along")
    if isinstance(cpu, Elastic) and (service is not None or gpus):
        beside = "service=: a service with several dops is elastic by itself" if service is not None else "gpu="
        raise DefinitionError(f"{name}: cpu= takes a number of cores, not an Elastic, beside {beside}")


def _mapping(name: str, quota: object) -> Mapping[str, object]:
    if quota is None:
        return {}
    calls = cast(Mapping[object, object], quota) if isinstance(quota, Mapping) else {None: quota}
    if not all(isinstance(key, str) for key in calls):
        raise DefinitionError(f"{name}: quota= takes {{name: calls}}, not {quota!r}")
    return cast(Mapping[str, object], calls)
