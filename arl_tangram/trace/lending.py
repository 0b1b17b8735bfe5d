"""Integrate over time what calls let others have of their cores while they wait for actions that they called."""

from __future__ import annotations

from typing import NamedTuple


class Loan(NamedTuple):
    """What one call has lent: unit-seconds so far, and what it lends now, since when."""

    unit_s: float
    units: int
    since_s: float


class Lending:
    """Unit-seconds that running calls did not hold.

    Attributes:
        loans: of each running call that has ever lent, by its id.
    """

    def __init__(self) -> None:
        self.loans: dict[int, Loan] = {}

    def lend(self, id_: int, units: int, at_s: float) -> None:
        """A call lets others have so many units from now on."""
        self.loans[id_] = Loan(self.unit_s(id_, at_s), units, at_s)

    def resume(self, id_: int, at_s: float) -> None:
        """A call has all of its units again."""
        if id_ in self.loans:
            self.lend(id_, 0, at_s)

    def unit_s(self, id_: int, until_s: float) -> float:
        """Return unit-seconds that a call has lent up to now."""
        loan = self.loans.get(id_)
        return 0.0 if loan is None else loan.unit_s + loan.units * (until_s - loan.since_s)

    def forget(self, id_: int) -> None:
        """A call has ended."""
        self.loans.pop(id_, None)
