"""In which order actions of one priority are served: each gets a rank when it joins the queue, and keeps it.

A rank is a time on the clock of the arrivals, so that nobody starves: whoever comes late enough ranks behind
everybody who waits now, whatever the order.

- `fcfs`: arrival.
- `shortest`: arrival + 20 x the expected duration. Short ones overtake, and an action is overtaken by those that come
  within 20 times its own duration at most. Shortest-processing-time-first minimises the mean completion time
  (W. E. Smith, "Various optimizers for single-stage production", 1956); the slack that grows with the size bounds the
  slowdown.
- `trajectory`: the admission of the trajectory, so that the oldest are finished first; of those that were admitted
  together, first whose actions have taken the longest so far. Actions outside any trajectory rank by arrival.
"""

from __future__ import annotations

from typing import Literal, get_args

from arl_tangram.errors import ConfigurationError

Order = Literal["fcfs", "shortest", "trajectory"]

_SLACK = 20.0


def order_of(order: str) -> Order:
    """Return an order.

    Raises:
        ConfigurationError: there is none of that name.
    """
    if order not in get_args(Order):
        raise ConfigurationError(f"order= takes one of {', '.join(map(repr, get_args(Order)))}, not {order!r}")
    return order  # type: ignore[return-value]


def shortest_rank(arrived_at_s: float, expected_s: float) -> float:
    """Return the rank of an action that is expected to run for `expected_s` seconds on its least units."""
    return arrived_at_s + _SLACK * expected_s


def trajectory_rank(admitted_at_s: float, attained_s: float) -> float:
    """Return the rank of an action in a trajectory whose actions have run for `attained_s` seconds so far."""
    return admitted_at_s - attained_s
