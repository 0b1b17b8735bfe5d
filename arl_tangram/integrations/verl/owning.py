"""The runtime that the process of the trainer owns: opened for the job, closed when the job ends; it knows no verl."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from arl_tangram.errors import ConfigurationError, InfrastructureError, OwnerLostError, TangramError, UsageError
from arl_tangram.integrations.ray.sharing import Node, Shared, share
from arl_tangram.integrations.rollouts.addresses import find_function
from arl_tangram.integrations.rollouts.here import close_here, open_here
from arl_tangram.integrations.rollouts.step_metrics import StepMetrics
from arl_tangram.integrations.verl.settings import Settings
from arl_tangram.integrations.verl.stale import StaleGroups

__all__ = ["Owned", "at_end_of_run", "disown", "own", "present"]

logger = logging.getLogger(__name__)


class Owned:
    """What the trainer's process knows of the runtime that it owns.

    Args:
        runtime: the shared runtime, open.
        rollouts: how many rollouts there are of each prompt.
        threshold: as for `StaleGroups`.
    """

    def __init__(self, runtime: Shared, rollouts: int, threshold: int | None = None) -> None:
        self.runtime = runtime
        self.rollouts = rollouts
        self._stale = StaleGroups(threshold)
        self._steps = StepMetrics()
        self._counting = threading.Lock()
        self._cancelled = 0

    def check(self) -> None:
        """Check that the runtime can be of use again.

        Raises:
            OwnerLostError: it never will: no rollout that is begun now could call anything.
        """
        if self.runtime.is_over or not self.runtime.is_open:
            raise OwnerLostError(f"{self.runtime!r} is gone for good: no rollout can call a tool, so the training ends")

    def begin(self, groups: Iterable[str], global_step: int) -> None:
        """Note which groups of rollouts begin at a training step, and begin to end those that are too old by now."""
        stale = self._stale.step(groups, global_step)
        if stale:
            thread = threading.Thread(target=self._cancel, args=(stale,), name="arl_tangram cancel", daemon=True)
            thread.start()  # for a call that does not listen it lasts, and the trainer has other things to do

    def ended(self, groups: Iterable[str]) -> None:
        """Note which groups have come to their end."""
        self._stale.forget(groups)

    def take_cancelled(self) -> int:
        """Return in how many groups something was cancelled since this was asked before."""
        with self._counting:
            cancelled, self._cancelled = self._cancelled, 0
        return cancelled

    def take_figures(self) -> dict[str, float]:
        """Return what was used since this was asked before, as `StepMetrics` tells it; nothing if no answer comes."""
        try:
            return self._steps.since(_off_loop(self.runtime.figures))
        except TangramError as error:
            logger.warning("no figures of the shared runtime in this step: %s", error)
            return {}

    def _cancel(self, groups: Sequence[str]) -> None:
        """End what the rollouts of these groups call, in all processes.

        A runtime that does not answer is no reason to end the training: it is logged.
        """

        async def cancel_all() -> list[int | BaseException]:
            return await asyncio.gather(*map(self.runtime.cancel_group, groups), return_exceptions=True)

        try:
            ended = self.runtime.wait(cancel_all())
        except (InfrastructureError, UsageError) as error:
            ended = [error]
        failed = [each for each in ended if isinstance(each, BaseException)]
        with self._counting:
            self._cancelled += sum(isinstance(each, int) and each > 0 for each in ended)
        if failed:
            logger.warning("of %d stale groups, some are not cancelled: %s", len(groups), failed[0])


_lock = threading.Lock()
_present: list[Owned] = []


def own(settings: Settings, rollouts: int, threshold: int | None = None) -> Owned:
    """Open the runtime of a job, which this process owns until `disown`; it blocks, under a running loop as well.

    Args:
        settings: what the job says of it.
        rollouts: as for `Owned`.
        threshold: as for `Owned`.

    Raises:
        ConfigurationError: the addresses lead nowhere, or the pools cannot be opened.
        InfrastructureError: its actors did not start in time.
    """
    pools = find_function(settings.pools, where="tangram.pools")
    nodes = None if settings.nodes is None else _nodes(settings.nodes)
    runtime = open_here(
        lambda: share(
            pools,
            name=settings.name,
            nodes=nodes,
            lease_s=settings.lease_s,
            start_timeout_s=settings.start_timeout_s,
        )
    )
    owned = Owned(runtime, rollouts, threshold)
    with _lock:
        _present[:] = [owned]
    return owned


def disown() -> None:
    """Close the runtime that this process owns, and what it holds everywhere; idempotent; it blocks."""
    with _lock:
        _present.clear()
    close_here()


def present() -> Owned | None:
    """Return what this process owns; None before the manager has made it, and after the end of the run."""
    with _lock:
        return _present[0] if _present else None


def at_end_of_run(close: Callable[[], None], module: Any) -> None:
    """Have `close` called before `module.close`, once: verl calls that last, whether the run succeeds or fails.

    `module.close` is put back first; it is called whatever `close` raises, which is logged: what has ended the run must
    be seen, and not what failed after it.

    Args:
        close: ends what is ours.
        module: has a function `close`, such as the package transfer_queue.
    """
    original = module.close

    def close_both(*args: Any, **kwargs: Any) -> Any:
        module.close = original
        try:
            close()
        except Exception:
            logger.exception("the shared runtime is not closed properly")
        return original(*args, **kwargs)

    module.close = close_both


def _off_loop(call: Callable[[], Any]) -> Any:
    """Call something that blocks on a thread of its own, where no event loop runs, and block for it."""
    with ThreadPoolExecutor(1, thread_name_prefix="arl_tangram owner") as thread:
        return thread.submit(call).result()


def _nodes(address: str) -> Sequence[Node]:
    """Return the nodes that a function returns.

    Raises:
        ConfigurationError: it returns something else.
    """
    given: object = find_function(address, where="tangram.nodes")()
    nodes = list(cast("Sequence[object]", given)) if isinstance(given, Sequence) else []
    if not nodes or not all(isinstance(node, Node) for node in nodes):
        raise ConfigurationError(f"tangram.nodes: {address} returns a sequence of Node, not {given!r}")
    return cast("list[Node]", nodes)
