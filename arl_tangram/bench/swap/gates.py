"""What `bench swap` promises: arithmetic on its rounds. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from arl_tangram.bench.gates import Gate
from arl_tangram.bench.swap.figures import Round

LEAST_OF_COPY = 0.6
AIM_OF_COPY = 0.8
LEAST_OF_TO = 5.0
MOST_EVICT_S = 0.001
MOST_OF_LAG = 1.25


def gates(rounds: Sequence[Round]) -> list[Gate]:
    """Return the promises. The best of the rounds counts for each: what is worse, the rest of the machine has done."""
    restore_s = min(one.restore_s for one in rounds)
    of_copy = min(one.copy_s for one in rounds) / restore_s
    of_to = min(one.to_s for one in rounds) / restore_s
    evict_s = min(one.evict_s for one in rounds)
    lags_s = min(one.restore_lag_s for one in rounds), min(one.copy_lag_s for one in rounds)
    best = f"best of {len(rounds)} rounds"
    return [
        Gate(
            f"numpy.copyto is at most {1 / LEAST_OF_COPY:.2f} times as fast as a restore, warm pages",
            1 / LEAST_OF_COPY,
            1 / of_copy,
            f"{best}: a restore has {of_copy:.0%} of its bandwidth; the aim is {AIM_OF_COPY:.0%}",
        ),
        Gate(
            f"a restore takes at most 1/{LEAST_OF_TO:g} of what .to() does",
            1 / LEAST_OF_TO,
            1 / of_to,
            f"{best}: {of_to:.1f} times as fast",
        ),
        Gate(f"evicted within {MOST_EVICT_S * 1e3:g} ms", MOST_EVICT_S * 1e3, evict_s * 1e3, f"ms, {best}"),
        Gate(
            f"the loop is at most {MOST_OF_LAG:g} times as late as while numpy.copyto runs in a thread, p99",
            MOST_OF_LAG,
            lags_s[0] / lags_s[1],
            f"{best}: {lags_s[0] * 1e3:.2f} ms beside {lags_s[1] * 1e3:.2f} ms",
        ),
    ]
