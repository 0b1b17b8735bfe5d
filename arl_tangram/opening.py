"""Open what a runtime consists of that decides itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial

from arl_tangram.closing import Opened
from arl_tangram.dispatch import Dispatcher
from arl_tangram.doorway import Doorway
from arl_tangram.execution import refuse, resize
from arl_tangram.managers.breakers import Breakers
from arl_tangram.managers.gpu.manager import GpuManager
from arl_tangram.managers.manager import CpuManager
from arl_tangram.managers.processes import BodyProcesses
from arl_tangram.managers.threads import BodyThreads
from arl_tangram.model.events import Event
from arl_tangram.model.gpu import Instance
from arl_tangram.model.sharing import SharePolicy, Sharing
from arl_tangram.model.topology import Topology
from arl_tangram.scheduling.core import SchedulerCore
from arl_tangram.setup import Setup, cores_of, seats_of
from arl_tangram.timed_policy import watched, watched_share
from arl_tangram.trace.jsonl import JsonlSink
from arl_tangram.trace.sink import Sink
from arl_tangram.trace.summary import Summary
from arl_tangram.workshop import Workshop

_logger = logging.getLogger("arl_tangram")


class OwnParts(Opened):
    """What a runtime consists of that decides itself; made by `opened`.

    Attributes:
        summary: what happened so far.
        dispatcher: the scheduler on the loop.
        gpu: the manager of the GPUs, if there is a pool.
        breakers: those of the quotas, if any has one.
        cannot_share: why running actions keep their cores, though they were to share them; None if they do share them,
            or were not to.
    """

    def __init__(
        self, setup: Setup, workshop: Workshop, summary: Summary, dispatcher: Dispatcher, gpu: GpuManager | None
    ) -> None:
        super().__init__(workshop, setup.policy.reserved_cores)
        self.summary = summary
        self.dispatcher = dispatcher
        self.gpu = gpu
        self.breakers: Breakers | None = None
        self.cannot_share: str | None = None
        self._share = setup.share

    def sharing_in_words(self) -> str | None:
        """Say whether running actions share their cores; None where nobody asked for that."""
        if self._share is None:
            return None
        if self.cannot_share is not None:
            return f"running actions keep their cores, for all that share= says: {self.cannot_share}"
        if self.summary.why_refused(shares=True) is not None:
            return f"running actions share their cores equally, as {self._share.name} was refused"
        return f"running actions share their cores by {self._share.name}"


class Happened:
    """Hands what happens to the summary and to the sink of the trace."""

    def __init__(self, summary: Summary, sink: Sink | None) -> None:
        self._summary = summary
        self._sink = sink

    def tell(self, events: Sequence[Event]) -> None:
        """Hand events over, in their order."""
        self._summary.add_all(events)
        if self._sink is None:
            return
        try:
            for event in events:
                self._sink.write(event)
        except Exception:
            # One that is the user's own must not be able to keep a caller from its answer.
            _logger.exception("%r does not take events; the trace ends here", self._sink)
            self._sink = None


async def opened(setup: Setup, doorway: Doorway, on_closed: Callable[[], None]) -> OwnParts:
    """Open what a runtime consists of, on the running loop; if that fails, all of it is closed again.

    Args:
        setup: what to open.
        doorway: the way onto this loop.
        on_closed: called when everything is closed.
    """
    async with AsyncExitStack() as stack:
        stack.callback(on_closed)
        stack.push_async_callback(doorway.aclose)
        cpu = None if setup.pool is None else setup.pool.manager()
        if cpu is not None:
            stack.push_async_callback(cpu.aclose)
            await cpu.prepare()
        gpu = None if setup.gpus is None else setup.gpus.manager()
        if gpu is not None:
            stack.push_async_callback(gpu.aclose)
            await gpu.start()
        seats = None if gpu is None else seats_of(gpu)
        services = () if gpu is None else [service.name for service in gpu.services]
        topology = setup.topology(() if cpu is None else cpu.dimensions(), cores_of(cpu), seats, services)
        sink = sink_of(setup, topology)
        if sink is not None:
            stack.push_async_callback(sink.aclose)
        if cpu is not None:
            await cpu.start()
        sharing = None if setup.share is None or cpu is None else _sharing(setup.share, cpu)
        summary = Summary(topology)
        core = SchedulerCore(
            topology, watched(setup.policy), order=setup.order, record=True, submissions=sink is not None, seats=seats,
            sharing=sharing,
        )  # fmt: skip
        dispatcher = Dispatcher(core, Happened(summary, sink).tell)
        if gpu is not None:
            dispatcher.gpus.on_evicted = partial(_evict, gpu)
            gpu.listen(dispatcher.gpus)
        workshop = Workshop(
            dispatcher,
            cpu,
            BodyThreads(),
            BodyProcesses(most_idle=cores_of(cpu)),
            setup.kill_grace_s,
            asyncio.get_running_loop(),
            {quota.name: quota for quota in setup.quotas},
        )
        workshop.gpu = gpu
        workshop.shares = sharing is not None
        dispatcher.on_resized = partial(resize, workshop)
        stack.callback(workshop.watch.close)
        breakers = {quota.name: quota.breaker for quota in setup.quotas if quota.breaker is not None}
        parts = OwnParts(setup, workshop, summary, dispatcher, gpu)
        if breakers:
            workshop.breakers = parts.breakers = Breakers(breakers, topology, dispatcher, partial(refuse, workshop))
        if cpu is not None and setup.share is not None:
            parts.cannot_share = cpu.cannot_resize()
        summary.opened(dispatcher.time())
        parts.closes(stack.pop_all())
    return parts


def _sharing(policy: SharePolicy, cpu: CpuManager) -> Sharing | None:
    """Return how running actions share the cores of a pool that has started; None if they cannot."""
    why = cpu.cannot_resize()
    if why is not None:
        _logger.warning("share=%s is without effect, running actions keep their cores: %s", policy.name, why)
        return None
    return Sharing(watched_share(policy), cpu.switch_s)


def _evict(gpu: GpuManager, instances: Sequence[Instance]) -> None:
    for instance in instances:
        gpu.evict(instance)


def sink_of(setup: Setup, topology: Topology) -> Sink | None:
    """Return where the trace of a runtime goes, if anywhere."""
    if setup.trace is None or isinstance(setup.trace, Sink):
        return setup.trace
    shared = "" if setup.share is None else f", share={setup.share.name}"
    return JsonlSink(setup.trace, topology=topology, policy=f"{setup.policy.name}{shared}")
