"""The cores and sandboxes of all nodes, as a client sees them: a `CpuManager` over calls to the nodes' agents."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress

from arl_tangram.errors import ConfigurationError, NodeLostError, SandboxLostError, TangramError, UsageError
from arl_tangram.integrations.ray.client.calls import AgentCalls
from arl_tangram.integrations.ray.client.remote_lease import RemoteLease
from arl_tangram.integrations.ray.client.sandbox import RemoteSandbox
from arl_tangram.integrations.ray.lines import AgentLine
from arl_tangram.integrations.ray.naming import named
from arl_tangram.integrations.ray.wire import ANY_IMAGE, LeaseTold, NodeOffer, Shape
from arl_tangram.managers.manager import CpuLease, ManagedSandbox, check_least
from arl_tangram.model.quantities import plain
from arl_tangram.model.statistics import LatencyStatistics
from arl_tangram.model.topology import Dimension, resource_of

APPLY_S = 10.0
"""Seconds that an agent may take to apply cores beyond those that it waits itself for others to give them back."""


class RemoteCores:
    """The cores and sandboxes of all nodes; a `CpuManager`.

    What there is, and who gets it, is decided by the owner. Cores have numbers only on their own node, and are known
    here once the agent there has applied them.

    Attributes:
        on_node_lost: is told the number of a node whose agent does not answer.

    Args:
        session: the name that the owner has given to this client.
        shape: what there is.
        host: the number of the node that is this machine; None if none is.
        line: returns the way to the agent of a node.
        lease_s: for how long the owner may not hear of an agent before its node is lost; cores are waited for at least
            as long.
    """

    on_node_lost: Callable[[int, NodeLostError], None] | None = None

    def __init__(
        self,
        session: str,
        shape: Shape,
        host: int | None,
        line: Callable[[int], AgentLine],
        *,
        lease_s: float = 30.0,
    ) -> None:
        self._session = session
        self._shape = shape
        self._host = host
        self._line = line
        self._apply_s = lease_s + APPLY_S
        self._lease_numbers = itertools.count(1)
        self._calls: dict[int, AgentCalls] = {}
        self._sandboxes: dict[int, RemoteSandbox] = {}

    # What there is.

    async def prepare(self) -> None:
        """All is known already."""

    async def start(self) -> None:
        """The agents have started."""

    def dimensions(self) -> tuple[Dimension, ...]:
        """What all nodes offer."""
        return tuple(dimension for dimension in self._shape.dimensions if resource_of(dimension.name) is not None)

    def host_node(self) -> int | None:
        """Return the number of the node that is this machine, so that bodies without a sandbox take its cores."""
        return self._host

    def nodes_for(self, image: str | None, memory_bytes: int) -> tuple[int, ...]:
        """Return the numbers of the nodes where a trajectory can be.

        Args:
            image: what it is made from; None for the pool's own.
            memory_bytes: what it holds; 0 for no limit.
        """
        return tuple(
            number
            for number, offer in enumerate(self._shape.nodes)
            if _has_cores(offer)
            and (offer.no_image if image is None else offer.image) is None
            and not 0 < memory_bytes < offer.least_memory_bytes
        )

    def check_image(self, image: str | None) -> None:
        """Raise `ConfigurationError` if trajectories cannot have this image on any node."""
        offers = [offer for offer in self._shape.nodes if _has_cores(offer)]
        refusals = [offer.no_image if image is None else offer.image for offer in offers]
        if all(refusal is not None for refusal in refusals):
            said = [
                f"node {offer.name!r}: {refusal}" if offer.name else str(refusal)
                for offer, refusal in zip(offers, refusals, strict=True)
            ]
            raise ConfigurationError("; ".join(said).replace(repr(ANY_IMAGE), repr(image)) or "no node has cores")

    def check_memory(self, memory_bytes: int) -> None:
        """Raise `ConfigurationError` if that is too little for a sandbox on any node."""
        least = [offer.least_memory_bytes for offer in self._shape.nodes if _has_cores(offer)]
        check_least("shared pool", memory_bytes, min(least, default=0))

    def check_capacity(self, name: str, capacity: int) -> None:
        """Raise: the pool of a node is resized by its agent, when the owner says so."""
        raise UsageError(f"{name} is shared: the agent of its node decides what it can be")

    def resize(self, name: str, capacity: int) -> None:
        """Nothing is counted here."""

    def on_capacity(self, tell: Callable[[str, int], None]) -> None:
        """The agents tell the owner, and that tells the shape."""

    def describe(self) -> str:
        """Say in one line what enforces the grants on each node."""
        return "; ".join(f"{offer.name}: {offer.text}" if offer.name else offer.text for offer in self._shape.nodes)

    def latency(self) -> Mapping[str, Mapping[str, LatencyStatistics]]:
        """The daemons are elsewhere."""
        return {}

    def notes(self) -> tuple[str, ...]:
        """Nothing to add to the report."""
        return ()

    # The session.

    def reshape(self, shape: Shape) -> None:
        """There is more or less of something; calls end whose node is lost now, as what they are about is over."""
        for node in set(shape.lost) - set(self._shape.lost):
            if (calls := self._calls.pop(node, None)) is not None:
                calls.end(NodeLostError(f"{named(calls.node)} is lost"))
        self._shape = shape

    def lost(self, error: TangramError) -> None:
        """The session is over: end all calls with an error, and those of its sandboxes that come later."""
        for calls in self._calls.values():
            calls.end(error)
        self._calls.clear()
        self._sandboxes.clear()

    def reopen(self, session: str, shape: Shape) -> None:
        """Begin anew under another name, after `lost`."""
        self._session = session
        self._shape = shape

    async def aclose(self) -> None:
        """Close all sandboxes; bounded."""
        for sandbox in list(self._sandboxes.values()):
            await sandbox.aclose()
        for calls in self._calls.values():
            await calls.aclose()

    # What is granted.

    async def create_sandbox(self, *, image: str | None, memory_bytes: int, node: int = 0) -> ManagedSandbox:
        """Create a sandbox on a node; nothing is left behind if that fails or is cancelled.

        Raises:
            NodeLostError: the node does not answer.
            SandboxStartError: it could not be created.
        """
        calls = self._calls_of(node)
        number = calls.new_number()
        try:
            image = None if image is None else plain(image)
            arguments = {"sandbox": number, "image": image, "memory_bytes": memory_bytes}
            sandbox_id = await calls.do("create", arguments)
        except BaseException:
            calls.settle("close", {"sandbox": number})  # what was lost may be the answer
            raise
        sandbox = self._sandboxes[number] = RemoteSandbox(sandbox_id, number, node, calls, self._forget)
        return sandbox

    def lease(
        self, milli_cores: int, sandbox: ManagedSandbox | None, *, again: bool = False, most: int = 0
    ) -> CpuLease:
        """Hold cores, which the agent applies with the first command, or when they are asked for; synchronous.

        Raises:
            SandboxLostError: the sandbox is closed, or its session is over.
        """
        if sandbox is None:
            calls, number = self._calls_of(self._require_host()), None
        elif isinstance(sandbox, RemoteSandbox):
            sandbox.check()
            calls, number = sandbox.calls, sandbox.number
        else:
            raise SandboxLostError(f"sandbox {sandbox.id} is of another pool")
        told = LeaseTold(next(self._lease_numbers), milli_cores, again)
        lease = RemoteLease(calls, told, number, apply_s=self._apply_s)
        if isinstance(sandbox, RemoteSandbox):
            sandbox.begin(lease)
        return lease

    def cannot_resize(self) -> str | None:
        """Say why: the scheduler of a shared runtime does not change what runs."""
        return "a shared runtime lets running actions keep their cores"

    @property
    def switch_s(self) -> float:
        """Nothing is changed."""
        return 0.0

    def _require_host(self) -> int:
        if self._host is None:
            raise UsageError("no node of the shared pool is this machine, so there are no cores for a host body")
        return self._host

    def _calls_of(self, node: int) -> AgentCalls:
        if (calls := self._calls.get(node)) is None:
            name = self._shape.nodes[node].name

            def lost(error: NodeLostError) -> None:
                if self.on_node_lost is not None:
                    self.on_node_lost(node, error)

            calls = self._calls[node] = AgentCalls(self._session, name, self._line(node), lost)
        return calls

    def _forget(self, sandbox: RemoteSandbox) -> None:
        with suppress(KeyError):
            del self._sandboxes[sandbox.number]


def _has_cores(offer: NodeOffer) -> bool:
    return bool(offer.dimensions)
