"""What is known of an earlier owner: what there was, and what it wanted to be remembered; what it said last counts."""

from __future__ import annotations

import logging
from collections.abc import Callable

from arl_tangram.integrations.ray.owner.decider import Decider
from arl_tangram.integrations.ray.owner.rebuilding import rebuild
from arl_tangram.integrations.ray.wire import Kept, Resume, Shape

_logger = logging.getLogger(__name__)


class Earlier:
    """An earlier owner, as those tell of it who come from there.

    Attributes:
        shape: what there was; None if nobody has told.

    Args:
        now_s: tells the time.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.shape: Shape | None = None
        self._kept: tuple[Kept, float] | None = None
        self._now_s = now_s

    def learn(self, shape: Shape | None, kept: Kept | None) -> None:
        """Somebody tells what it knows."""
        if shape is not None and (self.shape is None or shape.version > self.shape.version):
            self.shape = shape
        if kept is not None and (self._kept is None or kept.version > self._kept[0].version):
            self._kept = kept, self._now_s()

    def kept(self) -> Kept | None:
        """Return what it wanted to be remembered, as of now; None if nobody has told."""
        return None if self._kept is None else self._kept[0].aged(self._now_s() - self._kept[1])

    def go_on(self, decider: Decider) -> None:
        """Let a new scheduler go on from there, where nobody holds anything any more, as all were cut off."""
        if self.shape is None:
            return
        decider.keep_version(self.shape.version)
        with decider.plenty(self.shape.dimensions):  # so that there is of quotas what was set
            pass
        if (kept := self.kept()) is None:
            return
        dispatcher = decider.dispatcher
        try:
            gone = Resume(self.shape, charges=kept.charges)
            rebuild(decider.core, [gone], dispatcher.now_s(), dispatcher.new_id)
            decider.memory.recall(kept, ())
        except Exception:
            _logger.exception("what the owner before wanted to be remembered is lost")
