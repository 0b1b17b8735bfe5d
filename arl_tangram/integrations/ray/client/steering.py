"""To steer a shared runtime from one process, and to look at it: all of that is asked of the owner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from arl_tangram.calling import Calling
from arl_tangram.inside import check_cancel_group, check_drain
from arl_tangram.integrations.ray.client.questions import Questions
from arl_tangram.integrations.ray.sessions.pump import Pump
from arl_tangram.model.quantities import is_name, plain
from arl_tangram.model.statistics import Statistics
from arl_tangram.trace.figures import Figures


class Steered(Calling):
    """What can be asked of the owner of a shared runtime, beside calls; see `Tangram`."""

    _pump: Pump
    _questions: Questions

    def pause(self) -> None:
        """Start nothing new from now on, in no process: calls and trajectories wait; see `Tangram.pause`.

        Raises:
            OwnerLostError: no answer. If the owner was stopped, and goes on, it may take effect nevertheless: say it,
                or `resume()`, again.
            LeaseLostError: this process has lost its session, and begins another.
        """
        self._check_open()
        self._look("halt", halted=True)

    def resume(self) -> None:
        """End the pause, and with it every `drain` that still waits, in all processes.

        Raises:
            OwnerLostError, LeaseLostError: as of `pause`.
        """
        self._check_open()
        self._look("halt", halted=False)

    async def drain(self) -> None:
        """Pause, and wait until nothing runs any more, in any process; see `Tangram.drain`.

        Raises:
            UsageError: `resume()` is called meanwhile, or this is in an action, which would wait for itself.
            ShutdownError: the runtime is closed meanwhile.
            LeaseLostError, OwnerLostError: the owner does not answer.
        """
        check_drain()
        await self._ask("drain", {})

    async def cancel_group(self, group: str) -> int:
        """End all actions, waiting and running, of the trajectories of a group, in all processes.

        Returns:
            How many actions were ended; see `Tangram.cancel_group`.

        Raises:
            LeaseLostError, OwnerLostError: the owner does not answer.
        """
        check_cancel_group(group)
        return cast(int, await self._ask("cancel_group", {"group": plain(group)}))

    def set_capacity(self, name: str, capacity: float) -> None:
        """Change what there is of a resource, for all processes; see `Tangram.set_capacity`.

        Cores, memory and sandboxes are changed by their node, which takes effect soon.

        Raises:
            ConfigurationError: no such resource, or a capacity that it cannot have.
            NodeLostError: the node that has it is lost.
            OwnerLostError, LeaseLostError: as of `pause`.
        """
        self._check_open()
        self._look("set_capacity", name=plain(name) if is_name(name) else name, capacity=capacity)

    def statistics(self) -> Statistics:
        """Return what waits, what runs, and what is used of each resource right now, by all processes.

        What lingers, and what waits to be tried again, is told of this process.

        Raises:
            OwnerLostError: no answer.
            LeaseLostError: this process has lost its session, and begins another.
        """
        self._check_opened()
        everywhere = cast(Statistics, self._look("statistics"))
        lingering, again = self._doorway.do(self._own)
        return replace(everywhere, lingering=lingering, waiting=everywhere.waiting + again)

    def _own(self) -> tuple[tuple[str, ...], int]:
        lingering = tuple(live.name for live in self._workshop.live.values() if live.lingering)
        return lingering, len(self._workshop.retrying.waiting())

    def report(self) -> str:
        """Return a text: action completion times and their parts by action, utilisation by pool, of all processes.

        Raises:
            OwnerLostError, LeaseLostError: as of `statistics`.
        """
        self._check_opened()
        return cast(str, self._look("report"))

    def figures(self) -> Figures:
        """Return the figures of the report, of all processes; see `Tangram.figures`.

        Raises:
            OwnerLostError, LeaseLostError: as of `statistics`.
        """
        self._check_opened()
        return cast(Figures, self._look("figures"))

    async def _ask(self, what: str, arguments: Mapping[str, Any]) -> Any:
        if not self._is_here():
            return await self._doorway.visit(lambda: self._ask(what, arguments))
        return await self._questions.ask(what, {**arguments, "said": self._pump.unheard()})

    def _look(self, what: str, **arguments: Any) -> Any:
        """Ask the owner, and block for its answer."""
        if self._is_here():  # else the loop goes on, and sends it itself
            arguments["said"] = self._pump.unheard()
        return self._questions.look(what, arguments)
