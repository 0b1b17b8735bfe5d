"""Clients whose sessions are over, until the nodes have ended what these had there."""

from __future__ import annotations

from collections.abc import Callable

from arl_tangram.integrations.ray.owner.holding import Held
from arl_tangram.integrations.ray.owner.holdings import Holdings
from arl_tangram.integrations.ray.owner.nodes import Nodes
from arl_tangram.integrations.ray.wire import EndSession, Roster


class Endings:
    """Takes back at once what such a client has on no node, and the rest when nothing of it is left on any.

    Args:
        nodes: the nodes.
        clients: returns the names of the sessions that go on, which nodes keep.
    """

    def __init__(self, nodes: Nodes, clients: Callable[[], tuple[str, ...]]) -> None:
        self._nodes = nodes
        self._clients = clients
        self._ending: dict[str, tuple[Holdings, set[str]]] = {}

    def begin(self, holdings: Holdings) -> None:
        """The session of a client is over."""
        holdings.end_waiting()
        holdings.end_running(lambda held: not self._is_on_nodes(held))
        name, roster = holdings.session, Roster(self._clients())
        self._ending[name] = (holdings, {node.offer.name for node in self._nodes if node.session is not None})
        for session in self._nodes.alive():
            session.tell(EndSession(name))
            session.tell(roster)
        self._look(name)

    def ended(self, name: str, node: str) -> None:
        """Nothing of a session is left on a node."""
        if name in self._ending:
            self._ending[name][1].discard(node)
            self._look(name)

    def node_lost(self, node: str) -> None:
        """Nothing of any session is left on a node when it is there again."""
        for name in list(self._ending):
            self.ended(name, node)

    def _is_on_nodes(self, held: Held) -> bool:
        assert held.running is not None
        pending = held.running.pending
        return pending.trajectory is not None or held.lease > 0 or bool(pending.demand.dimensions & self._nodes.mask)

    def _look(self, name: str) -> None:
        holdings, nodes = self._ending[name]
        if not nodes:
            del self._ending[name]
            holdings.end_running(lambda _: True)
            holdings.end_trajectories()
