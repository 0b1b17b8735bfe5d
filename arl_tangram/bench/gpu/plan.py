"""What `bench gpu` does, fixed before it begins: sizes, rounds, and the mix of teachers."""

from __future__ import annotations

from dataclasses import dataclass

MIB, GIB = 1 << 20, 1 << 30

MOST_S = 420.0
"""All of it: a GPU is often lent by the quarter of an hour."""


@dataclass(frozen=True, slots=True)
class Mix:
    """Teachers that take turns, as in distillation from many of them: each rollout is scored by that of its domain.

    Attributes:
        sizes: bytes of the teachers, the most wanted first.
        arena: bytes for those that are resident.
        actions: how many rollouts are scored.
        call_s: what scoring one takes on average; the number of sequences is chosen so. 0.6 is what the paper tells.
        load: the share of the time in which the device would compute if nothing ever had to be restored.
        seed: of the arrivals.
    """

    sizes: tuple[int, ...]
    arena: int
    actions: int
    call_s: float
    load: float = 0.75
    seed: int = 6


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole run.

    Attributes:
        dry: whether it is to show that it runs, and judges nothing.
        sizes: of the modules that are restored, in bytes, ascending.
        usual: which of them is swapped often, in the parts about bits, lag, overlap and memory.
        rounds: how many of each measurement count.
        swaps: how often a module goes and comes back while its bits are compared.
        lag_repeats: restores, one after the other, over which the lag of the loop is measured.
        length: tokens of a sequence.
        mix: the teachers.
    """

    dry: bool
    sizes: tuple[int, ...]
    usual: int
    rounds: int
    swaps: int
    lag_repeats: int
    length: int
    mix: Mix


FULL = Plan(
    dry=False,
    sizes=(GIB // 4, GIB, 4 * GIB, 14 * GIB),
    usual=GIB,
    rounds=5,
    swaps=200,
    lag_repeats=20,
    length=2048,
    mix=Mix(sizes=tuple(size * GIB for size in (4, 3, 6, 2, 4, 5, 3, 7, 2)), arena=13 * GIB, actions=120, call_s=0.6),
)
"""14 GiB are a model of 7 billion parameters in bf16; nine teachers are what the paper has, here 36 GiB of them."""

DRY = Plan(
    dry=True,
    sizes=(MIB, 4 * MIB, 16 * MIB),
    usual=4 * MIB,
    rounds=2,
    swaps=20,
    lag_repeats=3,
    length=32,
    mix=Mix(sizes=tuple(size * MIB for size in (4, 3, 6, 2, 4, 5, 3, 7, 2)), arena=13 * MIB, actions=40, call_s=0.02),
)


def needed_on_device(size: int) -> int:
    """Return the bytes that a part about a module needs: an arena for two, two plain copies, and what is computed."""
    return 9 * size // 2 + min(GIB, size)


def needed_on_host(size: int) -> int:
    """Return the same of the host: the service, the module for `.to()`, one while it is loaded, pinned bytes."""
    return 5 * size
