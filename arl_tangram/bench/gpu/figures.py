"""What `bench gpu` finds out. Values; times in seconds, memory in bytes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SizeRound:
    """One of everything for a module of one size, one after the other.

    Attributes:
        plain_s: one `copy_` of as many bytes from pinned memory: the limit.
        copy_s: the same bytes into the arena, in pieces, off the loop.
        restore_s: from the request for memory to a module that can be used, its bytes compared by sums.
        evict_s: until its memory could be taken by others.
        to_s: what `.to()` takes, from memory that is not pinned.
    """

    plain_s: float
    copy_s: float
    restore_s: float
    evict_s: float
    to_s: float


@dataclass(frozen=True, slots=True)
class Sized:
    """A module of one size.

    Attributes:
        size: of its packed bytes.
        rounds: what was measured.
        wrong: weights and answers that were not, bit by bit, as they should be.
    """

    size: int
    rounds: tuple[SizeRound, ...]
    wrong: int

    @property
    def share(self) -> float:
        """The bandwidth of a restore as a share of that of a plain pinned copy; the best round of each."""
        return min(each.plain_s for each in self.rounds) / min(each.restore_s for each in self.rounds)


@dataclass(frozen=True, slots=True)
class Bits:
    """A module that went and came back many times, at changing addresses.

    Attributes:
        size: of its packed bytes.
        swaps: how often.
        addresses: how many different ones it had.
        wrong_weights: weights that differed from those of a module that was never hosted, over all swaps.
        wrong_answers: answers that differed from its first one.
    """

    size: int
    swaps: int
    addresses: int
    wrong_weights: int
    wrong_answers: int


@dataclass(frozen=True, slots=True)
class Lag:
    """How late the loop was for others, in 99 % of all moments, in one round.

    Attributes:
        plain_s: while plain copies ran on a thread.
        restore_s: while a module was restored and evicted.
    """

    plain_s: float
    restore_s: float


@dataclass(frozen=True, slots=True)
class Overlap:
    """One service is restored and evicted again and again while another computes, in one round.

    Attributes:
        compute_s: the calls alone.
        restores_s: the restores alone.
        both_s: both at once.
        call_s: the median call alone.
        call_beside_s: the median call while the other is restored.
        restore_s: the median restore alone.
        restore_beside_s: the median restore while the other computes.
    """

    compute_s: float
    restores_s: float
    both_s: float
    call_s: float
    call_beside_s: float
    restore_s: float
    restore_beside_s: float

    @property
    def share(self) -> float:
        """How much of the shorter one was hidden behind the longer one: 1 all of it, 0 nothing, below 0 if it hurt."""
        return (self.compute_s + self.restores_s - self.both_s) / min(self.compute_s, self.restores_s)


@dataclass(frozen=True, slots=True)
class Memory:
    """What is in use of the device, in bytes.

    Attributes:
        arena: how large the arena was.
        before: before there was one.
        resident: while a module was resident.
        vacated: after it was evicted, and the arena was given back.
        again: with the arena taken again, and the module resident.
        closed: in the end.
    """

    arena: int
    before: int
    resident: int
    vacated: int
    again: int
    closed: int


@dataclass(frozen=True, slots=True)
class Mixed:
    """Teachers that took turns.

    Attributes:
        teachers: how many.
        teachers_bytes: of all of them.
        arena: bytes for those that were resident.
        rows: sequences of an action.
        length: tokens of a sequence.
        actions: rollouts that were scored.
        wrong: those whose result was not, bit by bit, that of the first one with the same teacher.
        execution_s: of all actions.
        overhead_s: the same.
        queueing_s: the same.
        act_p99_s: the 99th percentile of action completion times; None without actions.
        restores: how often a teacher had to be restored.
        restore_s: what these took in all.
        elapsed_s: from the first arrival to the last end.
    """

    teachers: int
    teachers_bytes: int
    arena: int
    rows: int
    length: int
    actions: int
    wrong: int
    execution_s: float
    overhead_s: float
    queueing_s: float
    act_p99_s: float | None
    restores: int
    restore_s: float
    elapsed_s: float

    @property
    def overhead_share(self) -> float | None:
        """Overhead / (execution + overhead), a ratio of sums; None without actions."""
        return self.overhead_s / (self.execution_s + self.overhead_s) if self.actions else None

    @property
    def hit_rate(self) -> float | None:
        """The share of the actions for which nothing had to be restored; None without actions."""
        return 1 - self.restores / self.actions if self.actions else None


@dataclass(frozen=True, slots=True)
class Found:
    """Everything that was measured so far; the rest is None, or empty.

    Attributes:
        sized: by size, ascending.
        bits: of the usual size.
        lags: one for each round.
        overlaps: the same.
        memory: of the usual size.
        mixed: the teachers.
        took_s: all of it; None before the end.
    """

    sized: tuple[Sized, ...] = ()
    bits: Bits | None = None
    lags: tuple[Lag, ...] = ()
    overlaps: tuple[Overlap, ...] = ()
    memory: Memory | None = None
    mixed: Mixed | None = None
    took_s: float | None = None
