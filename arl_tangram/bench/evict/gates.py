"""What `bench evict` promises: about the default policy beside LRU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from arl_tangram.bench.evict.contenders import CONTENDERS, LOSS
from arl_tangram.bench.evict.runs import Case
from arl_tangram.bench.gates import Gate

MOST_WHERE_IT_MATTERS = 0.75
WHERE_IT_MATTERS = ("zipf", "drifting")
MOST_ANYWHERE = 1.05


def gates(cases: Sequence[Case]) -> list[Gate]:
    """Return the promises, on means over the seeds."""
    named = [case for case in cases if case.stream in WHERE_IT_MATTERS]
    every = [contender.name for contender in CONTENDERS if contender.name.startswith(LOSS)]
    return [
        Gate(
            f"restores at most {MOST_WHERE_IT_MATTERS:g} times those of lru on {' and '.join(WHERE_IT_MATTERS)}",
            MOST_WHERE_IT_MATTERS,
            *_worst(named, [LOSS]),
        ),
        Gate(
            f"never more than {MOST_ANYWHERE:g} times those of lru, however many wait",
            MOST_ANYWHERE,
            *_worst(cases, every),
        ),
    ]


def _worst(cases: Iterable[Case], contenders: Sequence[str]) -> tuple[float | None, str]:
    ratios = [
        (ratio, f"{name} on {case.stream}{', engines' if case.engines else ''}")
        for case in cases
        for name in contenders
        if (ratio := case.ratio(name)) is not None
    ]
    return max(ratios) if ratios else (None, "not measured")
