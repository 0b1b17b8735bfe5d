"""What `bench gpu` promises, and what it aims at: arithmetic on its figures. Pure."""

from __future__ import annotations

from arl_tangram.bench.gates import Gate
from arl_tangram.bench.gpu.figures import Found
from arl_tangram.bench.gpu.plan import GIB, MIB, MOST_S
from arl_tangram.bench.gpu.show import size_of

MOST_EVICT_S = 0.001
MOST_OF_LAG = 1.25
UNFELT_LAG_S = 0.001
MOST_LEFT = 64 * MIB
AIM_OF_PLAIN = 0.9
AIM_OVERHEAD = 0.1
PAPER_OVERHEAD = 0.25

NOT_MEASURED = "not measured"

_LARGE = 0.9 * GIB  # modules have about the size that was asked for


def promises(found: Found) -> list[Gate]:
    """Return what must hold; of figures that others on the machine make worse, the best round counts."""
    return [
        _bits(found),
        _evicts(found),
        _lags(found),
        _memory(found),
        Gate(f"it takes at most {MOST_S / 60:g} min", MOST_S, found.took_s, "s" if found.took_s else NOT_MEASURED),
    ]


def _bits(found: Found) -> Gate:
    promise = "every weight and every answer is the same, bit by bit"
    wrong = [one.wrong for one in found.sized]
    where = [f"{len(found.sized)} sizes"] if found.sized else []
    if found.bits is not None:
        wrong += [found.bits.wrong_weights, found.bits.wrong_answers]
        where.append(f"{found.bits.swaps} swaps at {found.bits.addresses} addresses")
    if found.mixed is not None and found.mixed.actions:
        wrong.append(found.mixed.wrong)
        where.append(f"{found.mixed.actions} actions")
    return Gate(promise, 0, sum(wrong) if wrong else None, ", ".join(where) or NOT_MEASURED)


def _evicts(found: Found) -> Gate:
    promise = f"evicted within {MOST_EVICT_S * 1e3:g} ms"
    evicts = [(min(each.evict_s for each in one.rounds) * 1e3, f"ms, {size_of(one.size)}") for one in found.sized]
    worst = max(evicts, default=None)
    return Gate(promise, MOST_EVICT_S * 1e3, *(worst or (None, NOT_MEASURED)))


def _lags(found: Found) -> Gate:
    promise = (
        f"the loop is at most {MOST_OF_LAG:g} times as late as beside a plain copy on a thread, p99, "
        f"or by {UNFELT_LAG_S * 1e3:g} ms"
    )
    if not found.lags:
        return Gate(promise, MOST_OF_LAG, None, NOT_MEASURED)
    plain_s, restore_s = min(one.plain_s for one in found.lags), min(one.restore_s for one in found.lags)
    return Gate(
        promise,
        MOST_OF_LAG,
        restore_s / max(plain_s, UNFELT_LAG_S / MOST_OF_LAG),
        f"best of {len(found.lags)} rounds: {restore_s * 1e3:.2f} ms beside {plain_s * 1e3:.2f} ms",
    )


def _memory(found: Found) -> Gate:
    promise = f"what a module had is free for others within {MOST_LEFT // MIB} MiB"
    memory = found.memory
    if memory is None:
        return Gate(promise, MOST_LEFT / MIB, None, NOT_MEASURED)
    left = max(memory.vacated - memory.before, memory.closed - memory.before)
    return Gate(promise, MOST_LEFT / MIB, left / MIB, f"MiB left of {memory.arena / MIB:,.0f}")


def aims(found: Found) -> list[Gate]:
    """Return what is aimed at, and does not count as a failure."""
    large = [one for one in found.sized if one.size >= _LARGE]
    worst = min(large, key=lambda one: one.share, default=None)
    mixed = found.mixed
    return [
        Gate(
            f"a plain pinned copy is at most {1 / AIM_OF_PLAIN:.2f} times as fast as a restore, from 1 GiB on",
            1 / AIM_OF_PLAIN,
            None if worst is None else 1 / worst.share,
            "no module was so large"
            if worst is None
            else f"a restore has {worst.share:.0%} of its bandwidth, {size_of(worst.size)}",
        ),
        Gate(
            f"overhead at most {AIM_OVERHEAD:.0%} of the mix; the paper has {PAPER_OVERHEAD:.0%}",
            AIM_OVERHEAD,
            None if mixed is None else mixed.overhead_share,
            f"{mixed.restores} restores for {mixed.actions} actions" if mixed and mixed.actions else NOT_MEASURED,
        ),
    ]
