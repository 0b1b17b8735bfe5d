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

        One that begins anew, under the same name, is not among them.
        """
        if self._threshold is None:
            return []
        for uid in uids:
            self._begun.pop(uid, None)  # so that the oldest stay first
            self._begun[uid] = global_step
        stale = [uid for uid, begun in self._begun.items() if global_step - begun + 1 > self._threshold]
        self.forget(stale)
        return stale

    def forget(self, uids: Iterable[str]) -> None:
        """Remember groups no longer: they have ended, and nothing is to be cancelled."""
        for uid in uids:
            self._begun.pop(uid, None)

    def __len__(self) -> int:
        return len(self._begun)
