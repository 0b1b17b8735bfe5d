"""The runtime that the process of the trainer owns: opened for the job, closed when the job ends; it knows no verl."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from arl_tangram.errors import ConfigurationError, InfrastructureError, UsageError
from arl_tangram.integrations.ray.sharing import Node, Shared, share
from arl_tangram.integrations.rollouts.addresses import find_function
from arl_tangram.integrations.rollouts.here import close_here, open_here
from arl_tangram.integrations.verl.settings import Settings

__all__ = ["Owned", "at_end_of_run", "disown", "off_loop", "open_owned", "own", "present"]

logger = logging.getLogger(__name__)


class Owned:
    """What the trainer's process knows of the runtime that it owns.

    Args:
        runtime: the shared runtime, open.
        rollouts: how many rollouts there are of each prompt.
    """

    def __init__(self, runtime: Shared, rollouts: int) -> None:
        self.runtime = runtime
        self.rollouts = rollouts
        self._cancelled = 0

    def cancel(self, groups: Sequence[str]) -> None:
        """End what the rollouts of these groups call, in all processes; blocks, from any thread.

        A runtime that does not answer is no reason to end the training: it is logged.
        """
        if not groups:
            return
        self._cancelled += len(groups)

        def cancel_all() -> None:
            for group in groups:
                self.runtime.wait(self.runtime.cancel_group(group))

        try:
            off_loop(cancel_all)
        except (InfrastructureError, UsageError) as error:
            logger.warning("stale rollouts are not cancelled: %s", error)

    def take_cancelled(self) -> int:
        """Return how many groups were cancelled since this was asked before."""
        cancelled, self._cancelled = self._cancelled, 0
        return cancelled


_lock = threading.Lock()
_present: list[Owned] = []


def open_owned(settings: Settings) -> Shared:
    """Open the runtime of a job in this process, and return it; it blocks, and may be called under a running loop.

    Raises:
        ConfigurationError: the addresses lead nowhere, or the pools cannot be opened.
        InfrastructureError: its actors did not start in time.
    """
    pools = find_function(settings.pools, where="tangram.pools")
    nodes = None if settings.nodes is None else _nodes(settings.nodes)
    return open_here(
        lambda: share(
            pools,
            name=settings.name,
            nodes=nodes,
            lease_s=settings.lease_s,
            start_timeout_s=settings.start_timeout_s,
        )
    )


def own(settings: Settings, rollouts: int) -> Owned:
    """Open the runtime of a job, and make it the one that this process owns until `disown`."""
    owned = Owned(open_owned(settings), rollouts)
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


def off_loop(call: Callable[[], Any]) -> Any:
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
