"""A core that is rebuilt at any moment from what is held goes on as if nothing had happened, by the laws of `World`."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from arl_tangram.model.lifecycle import Demand
from property.restarted import restart
from property.test_core_machine import Callers, Core, Nodes


class Restarts(RuleBasedStateMachine):
    """What is added to a machine of `test_core_machine`."""

    origin: dict[int, Demand]

    @rule(sessions=st.sampled_from([1, 2, 3]), settled=st.booleans())
    def restart(self, sessions: int, settled: bool) -> None:
        if settled:
            self.world.settle()  # type: ignore[attr-defined]
        if not hasattr(self, "origin"):
            self.origin = {}
        restart(self.world, self.origin, sessions)  # type: ignore[attr-defined]


class RestartedCore(Core, Restarts):
    """Anything."""


class RestartedCallers(Callers, Restarts):
    """Much that is lent."""


class RestartedNodes(Nodes, Restarts):
    """Several nodes."""


TestRestartedCore = RestartedCore.TestCase
TestRestartedCallers = RestartedCallers.TestCase
TestRestartedNodes = RestartedNodes.TestCase
