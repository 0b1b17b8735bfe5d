"""Whether a framework is installed in a version that its integration was tried with."""

from __future__ import annotations

import importlib.metadata
import re
from dataclasses import dataclass

from arl_tangram.errors import MissingExtraError


@dataclass(frozen=True, slots=True)
class Supported:
    """The versions of a distribution that work: from `low` on, and below `below`."""

    distribution: str
    low: str
    below: str

    @property
    def range(self) -> str:
        """The range as pip writes it."""
        return f">={self.low},<{self.below}"

    def check(self) -> None:
        """Look at what is installed, without importing it.

        Raises:
            MissingExtraError: it is not installed, or in another version.
        """
        name = self.distribution
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found = f"{name} is not installed"
        else:
            if _numbers(self.low) <= _numbers(installed) < _numbers(self.below):
                return
            found = f"{name} {installed} is installed"
        raise MissingExtraError(
            f"arl_tangram.integrations.{name} works with {name} {self.range}, and {found}: "
            f"pip install 'arl-tangram[{name}]'"
        )


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a release, without zeros at the end; what follows them (rc1, .post1, +cpu) is left out."""
    release = re.match(r"\d+(\.\d+)*", version)
    numbers = [int(number) for number in release[0].split(".")] if release else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
