"""Which groups of rollouts an asynchronous trainer would throw away, so that they need not run on; pure."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["StaleGroups"]


class StaleGroups:
    """The groups that were begun, each with the training step of its beginning.

    Args:
        threshold: versions of the weights that a group may span: verl drops it when it spans more. None for any number,
            and for trainers that drop nothing.
    """

    def __init__(self, threshold: int | None) -> None:
        self._threshold = threshold
        self._begun: dict[str, int] = {}

    def step(self, uids: Iterable[str], global_step: int) -> list[str]:
        """Return the groups to cancel at this step, each once, oldest first, and remember those that begin.

        A group that has ended by itself is among them: to cancel it does nothing.
        """
        if self._threshold is None:
            return []
        stale = [uid for uid, begun in self._begun.items() if global_step - begun + 1 > self._threshold]
        for uid in stale:
            del self._begun[uid]
        for uid in uids:
            self._begun[uid] = global_step  # begun anew, if it is dispatched again after a restart
        return stale

    def __len__(self) -> int:
        return len(self._begun)
