"""Cores that are shared by actions while they run: what a policy sees of each, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from arl_tangram.errors import ConfigurationError


class Sharer(Protocol):
    """One action that has, or wants, cores of one node. All cores are whole, all seconds those of one core's work."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Cores that it can have now, ascending, from 1: of a running one that cannot be resized, those that it had."""
        ...

    @property
    def rates(self) -> tuple[float, ...]:
        """How fast it is expected to be on each of `sizes`, relative to one core: above 0, not falling."""
        ...

    @property
    def resizable(self) -> bool:
        """Whether it can have others of its `sizes` later on; else it keeps for good what it starts with, or none."""
        ...

    @property
    def least(self) -> int:
        """Cores that it must keep: 0, or where it runs and must not be suspended, the first of `sizes`."""
        ...

    @property
    def cores(self) -> int:
        """Cores that it has; 0 while it waits or is suspended."""
        ...

    @property
    def attained_s(self) -> float:
        """Work done so far, in seconds of one core, at the expected rates."""
        ...

    @property
    def remaining_s(self) -> float:
        """Work to do that is expected to decide about its turn: see `Works.remaining_s`. Finite, above 0."""
        ...

    @property
    def next_s(self) -> float:
        """The `attained_s`, above what it is now, at which `remaining_s` will be another; infinite for never."""
        ...

    @property
    def order(self) -> int:
        """Its place by priority and arrival among all that share: a lower one came first."""
        ...


@runtime_checkable
class SharePolicy(Protocol):
    """Decides who of those that share the cores of a node runs, and on how many of them."""

    @property
    def name(self) -> str:
        """How reports and traces call it."""
        ...

    def rank(self, sharer: Sharer) -> float:
        """Return what orders those of one priority: lower runs first, and by `order` where it is equal.

        It depends on nothing but what the sharer is and has done. It is asked when one joins, and again when that has
        changed enough: see `next_s`.
        """
        ...

    def next_s(self, sharer: Sharer) -> float:
        """Return the `attained_s` at which the rank of one that runs is to be asked for again; infinite for never."""
        ...

    def share(self, sharers: Sequence[Sharer], cores: int, present: int) -> Sequence[int]:
        """Return how many cores each of them has from now on: 0, or one of its `sizes`, and at least its `least`.

        Args:
            sharers: in the order of their ranks, the first of those that are present: at least all that could get any.
            cores: that there are for them; the sum of all `least` is not more.
            present: how many there are, those that are not in `sharers` and get nothing included.
        """
        ...


@dataclass(frozen=True, slots=True)
class Sharing:
    """That running actions share their cores, and how.

    Attributes:
        policy: who has how many.
        switch_s: seconds that one change of an action's cores takes, for which it does not run.
    """

    policy: SharePolicy
    switch_s: float = 0.0


Share: TypeAlias = Literal["resize"] | SharePolicy | None
"""What pools take as `share=`: the policy, or the default one; None where cores are not shared by running actions."""


def check_share(share: object, pool: str) -> None:
    """Check what a pool was given as `share=`.

    Args:
        share: what was given.
        pool: what the user calls the pool.

    Raises:
        ConfigurationError: it is neither of what a `Share` can be.
    """
    if share is None or share == "resize" or (isinstance(share, SharePolicy) and not isinstance(share, type)):
        return
    raise ConfigurationError(
        f"{pool}(share=) takes 'resize', a policy such as policies.equal_shares(), or None, "
        f"not {share!r}{_advice(share)}"
    )


def _advice(share: object) -> str:
    """Say what may have been meant by what no pool takes; empty if there is no telling."""
    if callable(share):
        return "; call it"
    if hasattr(share, "planner"):
        return ", which decides what starts and is for Tangram(policy=)"
    lacking = [name for name in ("name", "rank", "next_s", "share") if not hasattr(share, name)]
    return f"; it lacks {', '.join(lacking)}" if len(lacking) < 4 else ""
