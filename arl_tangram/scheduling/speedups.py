"""Fit how an action speeds up from its own runs, and explore a little where they do not tell.

The model is duration(u) = work × u ** -p, with one exponent p per action and a correction per key where there is
evidence. p is the slope of log duration over log units, estimated recursively:

1. Each run is compared with its key's typical run, not with other keys, whose work differs: a policy gives more units
   to what it knows to be long, which would look like a bad speed-up. A key's first run, for whose length nobody knew,
   is compared with what the other keys made expect, and counts less, the more the keys differ.
2. Residuals are clipped at 2.5 standard deviations; old runs fade, some 1,000 count.
3. Ridge (A. E. Hoerl, R. W. Kennard, Technometrics 1970): p is drawn to the assumed 0.8, as if that were known to
   +-0.2, and a key's own p to its action's, as if to +-0.1. How much that weighs follows from the noise. If work is
   log-normal with 0.3, some twenty runs whose units differ much give p to +-0.05; with 1.2, a hundred to +-0.1.
4. Real curves are no power laws; some rise again. What the runs at some units deviate from the power law by is
   believed as far as it exceeds two and a half standard errors (a positive-part James-Stein estimator). Less would be
   cheaper to find, but noise that makes some units look a little better costs more than it finds: policies pick by
   small differences.

Exploration: while p is not known to +-0.1, the curve that a policy is shown promises in turn that the most, the fewest
(every other time some between these and the middle, which cost less), and some middle units are the best, so that
whatever policy there is tries them. After each start it is the next one's turn; after 16 such starts per action it
ends. A later step of the durations allows 4 more, at most once in 256 runs.
What a policy starts together, on one curve, is counted when it is over: there may be that many more.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, sqrt

from arl_tangram.model.quantities import MILLI
from arl_tangram.scheduling.running_mean import RunningMean, bounded

_ASSUMED_EXPONENT = 0.8
"""As in `ASSUMED_SPEEDUP`."""

_EXPONENT_ERROR = 0.2
_KEY_ERROR = 0.1
_KNOWN_ERROR = 0.1

_FADING = 1 - 1 / 1024
_MOST_RUNS = 256
_SIGNIFICANT = 2.5
_MOST_UNITS = 64

# Standard deviations of logarithms: of a run, and of a key's first run, before anything was seen, and how many runs
# that weighs.
_FIRST_NOISE, _FIRST_NOISE_RUNS = 1.2, 0.5
_KEYS_NOISE, _KEYS_NOISE_RUNS = 1.9, 8
_ODD = 2.5
_NEVER_ODD = 0.2

_EXPLORED = 16
_EXPLORED_AGAIN = 4
_AGAIN_AFTER = 256
# After a step, what was learned about the speed-up weighs a quarter: it need not have changed.
_DOUBT = 4
_LEAST_RUNS = 0.01
# Beyond the units whose turn it is, the curve rises: were it flat, a policy might pick any of them.
_RISE = 0.5


class _Deviation:
    """How the runs at some units deviate from the power law through their keys' typical run: means of logarithms.

    Attributes:
        x: logarithm of the units.
        runs: how many; old ones fade.
        dx: mean of the logarithm of the units, less the key's mean.
        dy: mean of the logarithm of the duration, less what the power law gives at the key's mean units.
        doubt: mean of how little the key's typical run was known, as a share of a run's variance.
        offset: the deviation that is believed, as of the last fit.
    """

    __slots__ = ("doubt", "dx", "dy", "offset", "runs", "x")

    def __init__(self, x: float) -> None:
        self.x = x
        self.runs = self.dx = self.dy = self.doubt = self.offset = 0.0


class SpeedupFit:
    """How one action speeds up, over all its keys.

    Attributes:
        exponent: p, from 0 to 1.
        version: changes whenever a curve would.
        runs: how many runs it was learned from.
        noise: standard deviation of a run's logarithm from what the fit says of its key.
        exploring: whether a policy is to be shown `exploring_curve`.
    """

    __slots__ = (
        "_again_at", "_allowed", "_deviations", "_due", "_explored", "_keys_noise", "_usual", "_weight",
        "_xx", "_xy", "_yy", "exploring", "exponent", "noise", "runs", "version",
    )  # fmt: skip

    def __init__(self) -> None:
        self.exponent = _ASSUMED_EXPONENT
        self.version = 0
        self.runs = 0
        self.noise = _FIRST_NOISE
        self.exploring = False
        self._xx = self._xy = self._yy = self._weight = 0.0
        self._usual = 0.0
        self._keys_noise = _KEYS_NOISE
        self._deviations: dict[int, _Deviation] = {}
        self._due = 1
        self._explored = 0
        self._allowed = _EXPLORED
        self._again_at = _AGAIN_AFTER

    @property
    def learned(self) -> bool:
        """Whether the runs weigh more than the assumption."""
        return self._xx >= self.ridge(_EXPONENT_ERROR)

    def ridge(self, error: float) -> float:
        """Return the weight of a belief that is sure to +-`error`, in runs × (log units)²."""
        return (self.noise / error) ** 2

    def first(self, x: float, residual: float | None) -> None:
        """Learn from the first run of a key.

        Args:
            x: logarithm of its units.
            residual: logarithm of its duration at one unit, less what other keys made expect; None if there are none.
        """
        self.runs += 1
        if residual is not None:
            keys_noise = self._keys_noise
            most = _ODD * keys_noise + _NEVER_ODD
            residual = min(most, max(-most, residual))
            self._keys_noise += max(1 / (_KEYS_NOISE_RUNS + self.runs), 1 / _MOST_RUNS) * (
                1.25 * abs(residual) - keys_noise
            )
            weight = 0.5 * min(1.0, (self.noise / keys_noise) ** 2)
            dx = x - self._usual
            dy = residual - self.exponent * dx
            self._xx += weight * dx * dx
            self._xy += weight * dx * dy
            self._yy += weight * dy * dy
            self._weight += 0.5
        self._usual += max(1 / self.runs, 1 / _MOST_RUNS) * (x - self._usual)
        self._refit_if_due()

    def learn(self, runs: int, x: float, weight: float, *, xx: float, xy: float, yy: float) -> None:
        """Learn from later runs of a key, compared with its earlier ones.

        Args:
            runs: how many.
            x: mean logarithm of their units.
            weight: of the sums, from 1/2 for the second run of a key to 1.
            xx: sum of squares of the logarithm of the units, less the key's mean.
            xy: sum of products of that and the logarithm of the duration, less the key's mean.
            yy: sum of squares of the latter.
        """
        self.runs += runs
        fading = _FADING**runs
        self._xx = fading * self._xx + weight * xx
        self._xy = fading * self._xy + weight * xy
        self._yy = fading * self._yy + weight * yy
        self._weight = fading * self._weight + weight * runs
        self._usual += max(1 / self.runs, 1 / _MOST_RUNS) * runs * (x - self._usual)
        self._refit_if_due()

    def deviation(self, units: int) -> _Deviation:
        """Return what is known about runs at so many integer units, to be learned from."""
        deviation = self._deviations.get(units)
        if deviation is None:
            if len(self._deviations) >= _MOST_UNITS:
                del self._deviations[next(iter(self._deviations))]
            deviation = self._deviations[units] = _Deviation(log(units / MILLI))
        return deviation

    def doubt(self) -> None:
        """The durations have made a step: the speed-up may be another one, too; at most once in 256 runs."""
        if self.runs < self._again_at:
            return
        self._again_at = self.runs + _AGAIN_AFTER
        self._allowed = self._explored + _EXPLORED_AGAIN
        self._xx /= _DOUBT
        self._xy /= _DOUBT
        self._yy /= _DOUBT
        self._weight /= _DOUBT
        for deviation in self._deviations.values():
            deviation.runs = max(deviation.runs / _DOUBT, _LEAST_RUNS)
        self._due = self.runs

    def started(self) -> None:
        """A run has started on a curve that explored."""
        self._explored += 1
        self.version += 1
        self._look_whether_to_explore()

    def curve(self, one_s: float, exponent: float, options: Sequence[int]) -> tuple[float, ...]:
        """Return the expected seconds at each option, of which one unit takes `one_s`."""
        return tuple([bounded(one_s / self.faster(units, exponent)) for units in options])

    def faster(self, units: int, exponent: float) -> float:
        """Return how many times faster so many integer units are than one whole unit."""
        deviation = self._deviations.get(units)
        if deviation is None:
            return float((units / MILLI) ** exponent)
        return exp(exponent * deviation.x - deviation.offset)

    def exploring_curve(self, one_s: float, options: Sequence[int]) -> tuple[float, ...]:
        """Return a curve on which the units whose turn it is are the best."""
        middle = _nearest(options, sqrt(options[0] * options[-1]))
        few = _nearest(options, sqrt(options[0] * middle))
        best = (options[-1], options[0], middle, options[-1], few, middle)[self._explored % 6]
        best_s = one_s * MILLI / best
        return tuple(
            bounded(best_s * best / units if units <= best else best_s * (units / best) ** _RISE) for units in options
        )

    def _refit_if_due(self) -> None:
        if self.runs < self._due:
            return
        self._due = self.runs + 1 + min(self.runs // 8, 31)
        self.version += 1
        self.exponent = p = slope(self._xx, self._xy, self.ridge(_EXPONENT_ERROR), _ASSUMED_EXPONENT)
        unexplained = max(0.0, self._yy + 2 * p * self._xy + p * p * self._xx)
        self.noise = sqrt((_FIRST_NOISE_RUNS * _FIRST_NOISE**2 + unexplained) / (_FIRST_NOISE_RUNS + self._weight))
        noise = _SIGNIFICANT * self.noise
        for deviation in self._deviations.values():
            offset = deviation.dy + p * deviation.dx
            doubtful = noise * noise * (1 / deviation.runs + deviation.doubt)
            deviation.offset = offset * (1 - doubtful / (offset * offset)) if offset * offset > doubtful else 0.0
        self._look_whether_to_explore()

    def _look_whether_to_explore(self) -> None:
        error = self.noise / sqrt(self._xx + self.ridge(_EXPONENT_ERROR))
        self.exploring = self._explored < self._allowed and error > _KNOWN_ERROR


class KeySpeedup:
    """What one key adds to the fit of its action, and its own exponent.

    Args:
        fit: that of the action.
        units: integer units of the first run.

    Attributes:
        exponent: p of this key, as of the last `follow`.
    """

    __slots__ = ("_typical", "_usual", "_version", "_xx", "_xy", "exponent", "fit")

    def __init__(self, fit: SpeedupFit, units: int) -> None:
        self.fit = fit
        self.exponent = fit.exponent
        self._version = fit.version
        self._usual = log(units / MILLI)
        self._typical: float | None = None
        self._xx = self._xy = 0.0

    def first(self, units: int, duration_s: float, guess_s: float | None) -> float:
        """Learn from the first run, and return what it would have taken on one unit.

        Args:
            units: integer units that it had.
            duration_s: of the run.
            guess_s: what the action's other keys made expect on one unit, or None.
        """
        one_s = bounded(duration_s * self.fit.faster(units, self.exponent))
        self.fit.first(self._usual, None if guess_s is None else log(one_s / guess_s))
        return one_s

    def learn(self, mean: RunningMean, all_units: Sequence[int], durations_s: Sequence[float]) -> None:
        """Learn from runs with so many integer units: the speed-up, and the mean of the durations at one unit."""
        fit, exponent, usual, level = self.fit, self.exponent, self._usual, mean.level
        gain, steps = mean.gain, mean.steps
        most = _ODD * fit.noise + _NEVER_ODD
        typical = level - exponent * usual if self._typical is None else self._typical
        total_y = 0.0
        xx = xy = yy = x = total_x = 0.0
        ones_s: list[float] = []
        for units, duration_s in zip(all_units, durations_s, strict=True):
            deviation = fit.deviation(units)
            x = deviation.x
            offset = deviation.offset
            one_s = bounded(duration_s * exp(exponent * x - offset))
            ones_s.append(one_s)
            residual = log(one_s) - level
            if not -most <= residual <= most:
                residual = most if residual > 0 else -most
            y = level + residual - exponent * x + offset
            dx, dy = x - usual, y - typical
            xx += dx * dx
            xy += dx * dy
            yy += dy * dy
            total_x += x
            total_y += y
            if deviation.runs < _MOST_RUNS:
                deviation.runs += 1
            deviation.dx += (dx - deviation.dx) / deviation.runs
            deviation.doubt += (gain - deviation.doubt) / deviation.runs
            deviation.dy += (residual + offset - exponent * dx - deviation.dy) / deviation.runs
        weight, count = 1 - gain, len(ones_s)
        fading = _FADING**count
        self._xx = fading * self._xx + weight * xx
        self._xy = fading * self._xy + weight * xy
        fit.learn(count, total_x / count, weight, xx=xx, xy=xy, yy=yy)
        mean.add(ones_s)
        self._usual += min(1.0, gain * count) * (total_x / count - usual)
        self._typical = typical + min(1.0, gain * count) * (total_y / count - typical)
        if mean.steps > steps:
            self._usual, self._typical = x, None
            fit.doubt()

    def follow(self, mean: RunningMean, *, alone: bool) -> None:
        """Take over what the fit of the action has learned; `alone`: the action has no other keys."""
        fit = self.fit
        if self._version == fit.version:
            return
        self._version = fit.version
        exponent = fit.exponent if alone else slope(self._xx, self._xy, fit.ridge(_KEY_ERROR), fit.exponent)
        if exponent != self.exponent:
            mean.project((exponent - self.exponent) * self._usual)
            self.exponent = exponent


def _nearest(options: Sequence[int], units: float) -> int:
    """Return the option that is nearest by its logarithm."""
    return min(options, key=lambda option: abs(log(option / units)))


def slope(xx: float, xy: float, ridge: float, believed: float) -> float:
    """Return the exponent, from 0 to 1, that sums and a belief, which weighs `ridge` above 0, amount to."""
    return min(1.0, max(0.0, (ridge * believed - xy) / (xx + ridge)))
