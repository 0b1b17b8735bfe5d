"""In which order actions of one priority are served: each gets a rank when it joins the queue, and keeps it.

A rank is a time on the clock of the arrivals, so that nobody starves: whoever comes late enough ranks behind
everybody who waits now, whatever the order.

- `fcfs`: arrival.
- `shortest`: arrival + 20 x the expected duration. Short ones overtake, and an action is overtaken by those that come
  within 20 times its own duration at most. Shortest-processing-time-first minimises the mean completion time
  (W. E. Smith, "Various optimizers for single-stage production", 1956); the slack that grows with the size bounds the
  slowdown.
- `trajectory`: the admission of the trajectory, less the seconds that its actions have run so far. The oldest are
  finished first; of those that were admitted together, the one that has needed the pool most. What has taken long is
  likely to take longer still where sizes are heavy-tailed, so that one is likely to hold up the step. At most an hour
  is gained in this way. Actions outside any trajectory rank by arrival.
"""

from __future__ import annotations

from typing import Literal, cast, get_args

from arl_tangram.errors import ConfigurationError

Order = Literal["fcfs", "shortest", "trajectory"]

_SLACK = 20.0
_MOST_LEAD_S = 3600.0


def order_of(order: str) -> Order:
    """Return an order.

    Raises:
        ConfigurationError: there is none of that name.
    """
    if order not in get_args(Order):
        raise ConfigurationError(f"order= takes one of {', '.join(map(repr, get_args(Order)))}, not {order!r}")
    return cast(Order, order)


def shortest_rank(arrived_at_s: float, expected_s: float) -> float:
    """Return the rank of an action that is expected to run for `expected_s` seconds on one unit."""
    return arrived_at_s + _SLACK * expected_s


def trajectory_rank(arrived_at_s: float, admitted_at_s: float, attained_s: float) -> float:
    """Return the rank of an action whose trajectory was admitted then, and has run actions for `attained_s` seconds."""
    return max(admitted_at_s - attained_s, arrived_at_s - _MOST_LEAD_S)
