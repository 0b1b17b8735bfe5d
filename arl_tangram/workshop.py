"""What all calls of one runtime share: its scheduler, its managers, its timers, and who is alive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any, Protocol

from arl_tangram.deciding import Deciding
from arl_tangram.managers.manager import BreakerCalls, CpuManager, GpuSeats
from arl_tangram.managers.processes import BodyProcesses
from arl_tangram.managers.quota import QuotaHandle
from arl_tangram.managers.threads import BodyThreads
from arl_tangram.model.lifecycle import RunningAction
from arl_tangram.retrying import Retrying
from arl_tangram.watching import LoopWatch


class Live(Protocol):
    """A call that holds units."""

    @property
    def name(self) -> str:
        """The action's name."""
        ...

    @property
    def lingering(self) -> bool:
        """Whether its caller was answered, and its body has not ended."""
        ...

    @property
    def task(self) -> asyncio.Task[None] | None:
        """The task that runs the body."""
        ...

    def shut_down(self) -> None:
        """End it because the runtime closes."""
        ...

    def detach(self) -> None:
        """Let go of a body that outlives the runtime."""
        ...

    def end_now(self) -> None:
        """Answer without the body, and end it for good; the process is forced to leave."""
        ...


class KnownQuota(Protocol):
    """What calls need to know of a quota beside its dimensions."""

    @property
    def keys(self) -> Sequence[str]:
        """Those that calls take, if it has any."""
        ...

    @property
    def longest_pause_s(self) -> float:
        """The most seconds for which a `Retry-After` is obeyed."""
        ...


@dataclass(slots=True, eq=False)
class Workshop:
    """What all calls of a runtime share.

    Attributes:
        dispatcher: who decides, on the event loop.
        cpu: the cores, if there is a pool.
        threads: for plain functions.
        processes: for bodies in worker processes.
        kill_grace_s: seconds that a cancelled body has to end.
        loop: the runtime's.
        quotas: by name.
        watch: watches the bodies on the loop.
        live: the calls that hold units, by id.
        trajectories: those that are admitted.
        retrying: tries calls again.
        breakers: those of the quotas, if any has one.
        gpu: the GPUs, if there is a pool.
        shares: whether running actions share their cores.
        time: tells the time of the loop.
    """

    dispatcher: Deciding
    cpu: CpuManager | None
    threads: BodyThreads
    processes: BodyProcesses
    kill_grace_s: float
    loop: asyncio.AbstractEventLoop
    quotas: Mapping[str, KnownQuota] = field(default_factory=dict[str, KnownQuota])
    watch: LoopWatch = field(default_factory=LoopWatch)
    live: dict[int, Live] = field(default_factory=dict[int, Live])
    trajectories: dict[Any, None] = field(default_factory=dict[Any, None])
    retrying: Retrying = field(default_factory=Retrying)
    breakers: BreakerCalls | None = None
    gpu: GpuSeats | None = None
    shares: bool = False
    time: Callable[[], float] = field(init=False)
    _timer_context: Context = field(default_factory=Context)

    def __post_init__(self) -> None:
        self.time = self.dispatcher.time

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Set a timer that keeps nothing alive once it is cancelled.

        A loop forgets a cancelled timer late, and with it the context in which it was set: in the
        body's own, that would be the arguments of the call and all that its context variables hold.
        """
        return self.loop.call_later(delay_s, callback, context=self._timer_context)

    def quota_handle(self, running: RunningAction, name: str) -> QuotaHandle:
        """Return what the body of a call sees of a quota that it holds."""
        number = dict(running.pending.demand.keys).get(name, 0)
        key = self.dispatcher.topology.quotas[name][number]
        declared = self.quotas[name]

        def count(calls: int | None, tokens: int | None) -> bool:
            amounts = [] if calls is None else [(dimension, calls) for dimension in key.calls]
            amounts += [] if tokens is None else [(dimension, tokens) for dimension in key.tokens]
            held = running.pending.id in self.live
            if held:
                self._on_loop(lambda: self.dispatcher.settle(running.pending.id, amounts))
            return held

        def say(failed: bool | None) -> bool:
            held, breakers = running.pending.id in self.live, self.breakers
            if held and breakers is not None:
                self._on_loop(lambda: breakers.say(running, name, self.dispatcher.now_s(), failed=failed))
            return held

        return QuotaHandle(
            pause=lambda for_s: self._on_loop(lambda: self._pause(key.all(), for_s)),
            count=count,
            key=declared.keys[number] if declared.keys else None,
            longest_pause_s=declared.longest_pause_s,
            say=say,
        )

    def _pause(self, dimensions: Sequence[int], for_s: float) -> None:
        for dimension in dimensions:
            self.dispatcher.pause(dimension, for_s)

    def _on_loop(self, callback: Callable[[], None]) -> None:
        """Do something on the loop: on it at once, as a decision may be due in this very turn; else very soon."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is self.loop:
            callback()
            return
        with suppress(RuntimeError):  # the loop is closed: nothing is granted any more
            self.loop.call_soon_threadsafe(callback, context=self._timer_context)
