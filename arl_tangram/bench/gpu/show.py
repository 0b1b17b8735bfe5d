"""The text that `bench gpu` prints, part by part."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from arl_tangram.bench import show as bench_show
from arl_tangram.bench import spread
from arl_tangram.bench.gates import Gate
from arl_tangram.bench.gpu.figures import Bits, Lag, Memory, Mixed, Overlap, Sized, SizeRound
from arl_tangram.bench.gpu.plan import GIB, MIB, Plan
from arl_tangram.bench.machine import Machine

_NAME = 46
_CELL = 13
_VERDICTS = {True: "aim, met", False: "aim, missed", None: "aim, ----"}

_ROWS: tuple[tuple[str, Callable[[SizeRound], float]], ...] = (
    ("plain pinned copy_", lambda one: one.plain_s),
    ("copy to the arena, in pieces, off the loop", lambda one: one.copy_s),
    ("restore", lambda one: one.restore_s),
    (".to(), not pinned", lambda one: one.to_s),
)


def introduction(machine: Machine, card: str, plan: Plan) -> str:
    """Say what is measured, on what, and how."""
    dry = "A dry run: it shows that everything runs; no figure says anything about a GPU.\n" if plan.dry else ""
    return (
        f"{card}\n"
        f"{machine.in_words}\n"
        f"{machine.versions}\n{dry}\n"
        "Plain pinned copy_: one copy of as many bytes from memory that torch has pinned; what the link can do. Copy\n"
        "to the arena: the same bytes, in pieces, off the loop. Restore: from the request for memory to a module that\n"
        "can be used, on a GPU with sums of its bytes compared. .to(): from memory that is not pinned, to memory\n"
        "that torch has kept. Evict: until the memory can be taken by others.\n"
        f"{plan.rounds} interleaved rounds, each begun by another, after one that does not count; the best of them, in "
        "ms,\nwith GB/s.\n"
    )


def sizes(sized: Sequence[Sized]) -> str:
    """Return two columns for each size: milliseconds, and GB/s."""
    if not sized:
        return "no size was measured\n"
    lines = [f"{'':<{_NAME}}" + "".join(f"{size_of(one.size):>{2 * _CELL}}" for one in sized)]
    for name, read in _ROWS:
        cells = ""
        for one in sized:
            best_s = min(map(read, one.rounds))
            cells += f"{best_s * 1e3:>{_CELL},.2f}{f'{one.size / best_s / 1e9:.2f}':>{_CELL}}"
        lines.append(f"{name:<{_NAME}}{cells}")
    evicts = "".join(f"{min(each.evict_s for each in one.rounds) * 1e3:>{_CELL}.2f}{'':>{_CELL}}" for one in sized)
    lines.append(f"{'evict':<{_NAME}}{evicts}".rstrip())
    shares = "".join(f"{'':>{_CELL}}{one.share:>{_CELL}.1%}" for one in sized)
    lines.append(f"{'restore, of the plain copy':<{_NAME}}{shares}")
    return "\n".join(lines) + "\n"


def bits(one: Bits) -> str:
    """Say what became of the bits."""
    return (
        f"{one.swaps} swaps of {size_of(one.size)} at {one.addresses} addresses: {one.wrong_weights} weights and "
        f"{one.wrong_answers} answers that differ\n"
    )


def lags(found: Sequence[Lag]) -> str:
    """Return the lag of the loop."""
    return _table(
        "lag of the loop, p99, in ms",
        [
            ("plain copies on a thread", [one.plain_s * 1e3 for one in found]),
            ("restores and evictions", [one.restore_s * 1e3 for one in found]),
        ],
        ".2f",
    )


def overlaps(found: Sequence[Overlap]) -> str:
    """Return what restoring one service costs while another computes."""
    return (
        _table(
            "one service is restored, another computes, in ms",
            [
                ("calls alone", [one.compute_s * 1e3 for one in found]),
                ("restores and evictions alone", [one.restores_s * 1e3 for one in found]),
                ("both at once", [one.both_s * 1e3 for one in found]),
                ("one call, alone", [one.call_s * 1e3 for one in found]),
                ("one call, beside restores", [one.call_beside_s * 1e3 for one in found]),
                ("one restore, alone", [one.restore_s * 1e3 for one in found]),
                ("one restore, beside calls", [one.restore_beside_s * 1e3 for one in found]),
            ],
            ",.2f",
        )
        + f"hidden of the shorter one: {max(one.share for one in found):.0%} (best round); "
        "100%: both at once take as long as the longer one, 0%: as both by turns, below: longer\n"
    )


def memory(one: Memory, *, dry: bool) -> str:
    """Return what was in use of the device."""
    who = "memory of this process" if dry else "memory of the GPU in use, by NVML"
    rows = (
        ("before", one.before),
        ("a module resident", one.resident),
        ("evicted, and the arena given back", one.vacated),
        ("the arena taken again, the module resident", one.again),
        ("closed", one.closed),
    )
    lines = [f"{f'{who}, in MiB':<{_NAME}}{'':>{_CELL}}{'beyond before':>{_CELL + 2}}"]
    for name, used in rows:
        lines.append(f"{name:<{_NAME}}{used / MIB:>{_CELL},.0f}{(used - one.before) / MIB:>{_CELL + 2},.0f}")
    lines.append(f"(the arena has {one.arena / MIB:,.0f} MiB)")
    return "\n".join(lines) + "\n"


def mixed(one: Mixed) -> str:
    """Return what became of the mix of teachers."""
    head = (
        f"{one.teachers} exclusive teachers of {size_of(one.teachers_bytes)} in all, {size_of(one.arena)} of them at a "
        f"time; {one.actions} rollouts, each action\nscores {one.rows} sequences of {one.length} tokens; random "
        f"arrivals for {one.elapsed_s:.0f} s\n"
    )
    each = one.actions
    if one.act_p99_s is None or one.overhead_share is None or one.hit_rate is None:
        return f"{head}  not measured: there was no time left for a rollout\n"
    rows = (
        ("execution, mean", f"{one.execution_s / each * 1e3:,.1f} ms"),
        ("overhead, mean", f"{one.overhead_s / each * 1e3:,.1f} ms"),
        ("queueing, mean", f"{one.queueing_s / each * 1e3:,.1f} ms"),
        ("action completion time, p99", f"{one.act_p99_s * 1e3:,.1f} ms"),
        ("overhead / (execution + overhead)", f"{one.overhead_share:.1%}"),
        ("restores", f"{one.restores}, of {one.restore_s / max(1, one.restores) * 1e3:,.1f} ms on average"),
        ("nothing had to be restored for", f"{one.hit_rate:.0%} of the actions"),
    )
    return head + "".join(f"  {name:<{_NAME - 2}}{value}\n" for name, value in rows)


def aim_lines(found: Sequence[Gate]) -> str:
    """Return one line for each aim."""
    return bench_show.gate_lines(found, _VERDICTS)


def _table(title: str, rows: Sequence[tuple[str, Sequence[float]]], form: str) -> str:
    lines = [f"{title:<{_NAME}}" + "".join(f"{head:>{_CELL}}" for head in spread.HEADS)]
    lines += [f"{name:<{_NAME}}{spread.cells(values, form, _CELL)}" for name, values in rows]
    return "\n".join(lines) + "\n"


def size_of(size: int) -> str:
    """Return a size as a reader wants it."""
    return f"{size / GIB:.3g} GiB" if size >= GIB // 8 else f"{size / MIB:.3g} MiB"
