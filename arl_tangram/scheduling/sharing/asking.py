"""Ask a policy of shares, check what it answers, and do without it from then on if it is wrong.

A policy that raises, or gives what is not possible, is refused: it is not asked again, and the cores are shared
equally from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from math import inf, isnan
from typing import Any, TypeVar, cast

from arl_tangram.model.sharing import SharePolicy, Sharer
from arl_tangram.scheduling.planning import told
from arl_tangram.scheduling.sharing.equal import equal_shares
from arl_tangram.scheduling.sharing.sharer import CoreSharer

T = TypeVar("T")


class Asking:
    """The policy of shares of one core.

    Attributes:
        policy: what is asked now.
        given: the name of the one that was given.
        refused: why the one that was given is not asked any more, or None.
    """

    def __init__(self, policy: SharePolicy) -> None:
        self.policy = policy
        self.given = policy.name
        self.refused: str | None = None

    def rank(self, sharer: CoreSharer) -> None:
        """Let a sharer have the rank that it deserves now: one that has no place among those without cores."""
        sharer.rank, sharer.ask_at_s = self.asked(sharer)

    def asked(self, sharer: CoreSharer) -> tuple[float, float]:
        """Return the rank that a sharer deserves now, and the work done at which that is to be asked for again."""
        rank = self._asked(lambda policy: _number(policy.rank(sharer)))
        ask_at_s = self._asked(lambda policy: _number(policy.next_s(sharer))) if sharer.cores else inf
        return rank, ask_at_s if ask_at_s > sharer.attained_s else inf

    def share(self, sharers: Sequence[CoreSharer], cores: int, present: int) -> list[int]:
        """Return how many cores each sharer has from now on; arguments as those of a policy."""
        return self._asked(lambda policy: _checked(policy.share(sharers, cores, present), sharers, cores))

    def _asked(self, ask: Callable[[SharePolicy], T]) -> T:
        if self.refused is None:
            try:
                return ask(self.policy)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # noqa: BLE001 - a policy may be anybody's
                self.refused = told(error)
                self.policy = equal_shares()
        return ask(self.policy)


def _number(answer: object) -> float:
    """Return a rank, or a work.

    Raises:
        TypeError: it is no number.
        ValueError: it is not one that can be compared.
    """
    if type(answer) is float and answer == answer:  # noqa: PLR0124 - the commonest, and no NaN
        return answer
    if isinstance(answer, bool) or not hasattr(answer, "__float__"):
        raise TypeError(f"ranks a sharer {answer!r}, which is no number")
    number = float(cast(Any, answer))
    if isnan(number):
        raise ValueError(f"ranks a sharer {answer!r}, which cannot be compared")
    return number


def _checked(answer: object, sharers: Sequence[Sharer], cores: int) -> list[int]:
    """Return shares if they are possible.

    Raises:
        ValueError: they are not.
        TypeError: they are no shares at all.
    """
    if not hasattr(answer, "__iter__") or isinstance(answer, (str, bytes)):
        raise TypeError(f"shares out {answer!r}, which is no sequence of cores")
    given = list(islice(cast(Iterable[Any], answer), len(sharers) + 1))
    if len(given) != len(sharers):
        raise ValueError(f"shares out to {len(given)}{'+' * (len(given) > len(sharers))} of {len(sharers)} sharers")
    shares: list[int] = []
    for cores_given, sharer in zip(given, sharers, strict=True):
        share: int | None = cores_given
        if type(cores_given) is not int or (cores_given and cores_given not in sharer.sizes):
            share = next((size for size in (0, *sharer.sizes) if size == cores_given), None)
        if share is None:
            raise ValueError(f"gives {cores_given!r} cores to a sharer that can have {sharer.sizes}")
        if share < sharer.least:
            raise ValueError(f"gives {share} cores to a sharer that is to have {sharer.least} at least")
        shares.append(share)
    if sum(shares) > cores:
        raise ValueError(f"gives {sum(shares)} cores, there are {cores}")
    if sharers and not any(shares) and min(sharer.sizes[0] for sharer in sharers) <= cores:
        raise ValueError(f"gives nobody any of {cores} cores")
    return shares
