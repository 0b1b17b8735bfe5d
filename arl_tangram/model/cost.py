"""The cost vector: what one call of an action takes, in integer units.

Cores count in thousandths (milli-cores), quota calls in thousandths, memory in bytes, so that
0.1 + 0.2 fits in 0.3 and a million acquisitions of 0.1 end at exactly nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from arl_tangram.errors import DefinitionError, TangramError
from arl_tangram.model.elasticity import Elastic

MILLI = 1000
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Cost:
    """What one call takes.

    Attributes:
        cpu: milli-cores, or an `Elastic` in whole cores; 0 for none.
        memory_bytes: bytes of host memory; 0 for none.
        quota: pairs of a quota's name and thousandths of a call, sorted by name.
    """

    cpu: int | Elastic = 0
    memory_bytes: int = 0
    quota: tuple[tuple[str, int], ...] = ()

    @property
    def minimum_cpu(self) -> int:
        """Milli-cores that the action needs at least."""
        return self.cpu.minimum * MILLI if isinstance(self.cpu, Elastic) else self.cpu


def declare_cost(
    name: str,
    *,
    cpu: float | Elastic = 0,
    memory_gib: float | Elastic = 0,
    quota: Mapping[str, float | Elastic] | None = None,
) -> Cost:
    """Check a declared cost and return it in integer units.

    Raises:
        DefinitionError: two elastic resources, or an amount that is negative, not finite, finer
            than a thousandth, or (for a quota) zero.
    """
    amounts: dict[str, object] = {"cpu": cpu, "memory_gib": memory_gib}
    if quota is not None and not isinstance(quota, Mapping):
        raise DefinitionError(f"{name}: quota= takes {{name: calls}}, not {quota!r}")
    amounts.update({f"quota[{key!r}]": value for key, value in (quota or {}).items()})
    elastic = [what for what, amount in amounts.items() if isinstance(amount, Elastic)]
    if len(elastic) > 1:
        raise DefinitionError(f"{name}: at most one resource may be Elastic, not {' and '.join(elastic)}")
    if elastic and elastic != ["cpu"]:
        raise DefinitionError(f"{name}: only cpu= can be Elastic so far, not {elastic[0]}")
    calls = []
    for key, value in sorted((quota or {}).items()):
        thousandths = thousandths_of(value, f"{name}: quota[{key!r}]", DefinitionError)
        if thousandths == 0:
            raise DefinitionError(f"{name}: quota[{key!r}] must be more than 0")
        calls.append((key, thousandths))
    return Cost(
        cpu=cpu if isinstance(cpu, Elastic) else thousandths_of(cpu, f"{name}: cpu", DefinitionError),
        memory_bytes=bytes_of(memory_gib, f"{name}: memory_gib", DefinitionError),
        quota=tuple(calls),
    )


def thousandths_of(value: object, what: str, error: type[TangramError]) -> int:
    """Return a number as integer thousandths; refuse what is negative, not finite or finer."""
    number = _checked(value, what, error)
    scaled = number * MILLI
    nearest = round(scaled)
    if abs(scaled - nearest) > 1e-6:
        raise error(f"{what} = {value!r} is finer than a thousandth")
    return nearest


def bytes_of(gib: object, what: str, error: type[TangramError]) -> int:
    """Return GiB as whole bytes, rounded up; refuse what is negative or not finite."""
    return math.ceil(Fraction(_checked(gib, what, error)) * GIB)


def _checked(value: object, what: str, error: type[TangramError]) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise error(f"{what} takes a number, not {value!r}")
    if not math.isfinite(value) or value < 0:
        raise error(f"{what} must be a finite number from 0, not {value!r}")
    return float(value)
