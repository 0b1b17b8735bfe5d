"""How an action speeds up with more units: `Elastic` ranges and speed-up curves."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from arl_tangram.errors import DefinitionError
from arl_tangram.model.quantities import whole

_DENSE_UP_TO = 8


@runtime_checkable
class Speedup(Protocol):
    """Speed-up over one unit: dop × efficiency, at least in (0, dop]."""

    def __call__(self, units: int) -> float:
        """Return how many times faster `units` (>= 1) are than one unit."""
        ...


@dataclass(frozen=True, slots=True)
class Linear:
    """Perfect scaling: n units are n times faster."""

    def __call__(self, units: int) -> float:
        """Return the speed-up."""
        return float(units)


@dataclass(frozen=True, slots=True)
class Amdahl:
    """Amdahl's law: the share `parallel` (0 to 1) scales, the rest does not.

    Source: G. M. Amdahl, "Validity of the single processor approach to achieving large scale
    computing capabilities", AFIPS 1967.
    """

    parallel: float

    def __post_init__(self) -> None:
        if not 0 <= self.parallel <= 1:
            raise DefinitionError(f"Amdahl(parallel) takes a share from 0 to 1, not {self.parallel!r}")

    def __call__(self, units: int) -> float:
        """Return the speed-up."""
        return 1 / (1 - self.parallel + self.parallel / units)


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """Speed-up n ** exponent, exponent from 0 (none) to 1 (linear)."""

    exponent: float

    def __post_init__(self) -> None:
        if not 0 <= self.exponent <= 1:
            raise DefinitionError(f"PowerLaw(exponent) takes 0 to 1, not {self.exponent!r}")

    def __call__(self, units: int) -> float:
        """Return the speed-up."""
        return float(units**self.exponent)


@dataclass(frozen=True, slots=True, init=False)
class Measured:
    """Speed-ups that were measured, `{units: speed-up}`; linear in between, flat outside."""

    units: tuple[int, ...]
    speedups: tuple[float, ...]

    def __init__(self, points: Mapping[int, float]) -> None:
        if not points:
            raise DefinitionError("Measured() needs at least one point {units: speed-up}")
        for units, speedup in points.items():
            whole(units, "Measured()", DefinitionError, least=1)
            if not (math.isfinite(speedup) and speedup > 0):
                raise DefinitionError(f"Measured() takes finite speed-ups above 0; {units} units have {speedup!r}")
        ordered = sorted(points.items())
        object.__setattr__(self, "units", tuple(u for u, _ in ordered))
        object.__setattr__(self, "speedups", tuple(float(s) for _, s in ordered))

    def __call__(self, units: int) -> float:
        """Return the speed-up, interpolated."""
        right = bisect_right(self.units, units)
        if right == 0:
            return self.speedups[0]
        if right == len(self.units):
            return self.speedups[-1]
        low, high = self.units[right - 1], self.units[right]
        share = (units - low) / (high - low)
        return self.speedups[right - 1] * (1 - share) + self.speedups[right] * share


@dataclass(frozen=True, slots=True, init=False)
class Elastic:
    """A range of whole units from which the scheduler picks one for each run.

    `Elastic(min, max)` admits every integer up to 8, then 12, 16, 24, 32, 48, 64, …, and always
    `min` and `max` themselves; `Elastic.of(1, 2, 4, 8)` exactly those. Of GPUs there are 1, 2, 4 or 8: a
    range of them admits those in it, and units that are listed must be such.

    Args:
        minimum: the least units that the action can run on, from 1.
        maximum: the most units that it can use.
        speedup: how it scales; without one, `PowerLaw(0.8)` is assumed.
        resizable: whether the units may change while it runs, in a sandbox of a pool with `share=`: the body starts as
            many workers as `current_allocation().max_units`, and these follow the cores that they have. Cores only.

    Attributes:
        options: the units that it admits, ascending.
        exact: whether these were listed, and are no range.

    Raises:
        DefinitionError: for units that are not whole, not positive or not in order.
    """

    options: tuple[int, ...]
    speedup: Speedup | None = field(default=None)
    exact: bool = field(default=False, compare=False, repr=False)
    resizable: bool = field(default=False)

    def __init__(self, minimum: int, maximum: int, *, speedup: Speedup | None = None, resizable: bool = False) -> None:
        minimum, maximum = _checked(minimum, maximum)
        if minimum > maximum:
            raise DefinitionError(f"Elastic(min, max) needs min <= max, not {minimum} > {maximum}")
        self._set(_admitted(minimum, maximum), speedup, exact=False, resizable=resizable)

    @classmethod
    def of(cls, *units: int, speedup: Speedup | None = None, resizable: bool = False) -> Elastic:
        """Return an `Elastic` that admits exactly these whole units."""
        if not units:
            raise DefinitionError("Elastic.of() needs at least one number of units")
        elastic = cls.__new__(cls)
        elastic._set(tuple(sorted(set(_checked(*units)))), speedup, exact=True, resizable=resizable)
        return elastic

    def _set(self, options: tuple[int, ...], speedup: Speedup | None, *, exact: bool, resizable: bool) -> None:
        if not isinstance(resizable, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise DefinitionError(f"Elastic(resizable=) takes True or False, not {resizable!r}")
        if speedup is not None and not callable(speedup):
            raise DefinitionError(f"speedup= takes a function of the units, not {speedup!r}")
        object.__setattr__(self, "options", options)
        object.__setattr__(self, "speedup", speedup)
        object.__setattr__(self, "exact", exact)
        object.__setattr__(self, "resizable", resizable)

    @property
    def minimum(self) -> int:
        """The least units, from 1."""
        return self.options[0]

    @property
    def maximum(self) -> int:
        """The most units."""
        return self.options[-1]


ASSUMED_SPEEDUP: Speedup = PowerLaw(0.8)
"""What an `Elastic` without a declared speed-up is taken to scale like."""


def _checked(*units: int) -> tuple[int, ...]:
    return tuple(whole(value, "Elastic", DefinitionError, least=1) for value in units)


def _admitted(minimum: int, maximum: int) -> tuple[int, ...]:
    units = set(range(minimum, min(maximum, _DENSE_UP_TO) + 1)) | {minimum, maximum}
    step = _DENSE_UP_TO
    while step <= maximum:
        units.update(u for u in (step, step + step // 2) if minimum <= u <= maximum)
        step *= 2
    return tuple(sorted(units))
