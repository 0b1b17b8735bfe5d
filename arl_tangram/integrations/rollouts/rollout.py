"""One rollout: the trajectory of its calls, its deadline, and the first failure of the infrastructure in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import MappingProxyType, TracebackType
from typing import Any, Self

from arl_tangram.action import BoundAction, invocable_of
from arl_tangram.calling import Calling
from arl_tangram.context import Invocable
from arl_tangram.errors import (
    BodyExitedError,
    ConfigurationError,
    InfrastructureError,
    NoTrajectoryError,
    OutOfMemoryError,
    QueueTimeout,
    RunTimeout,
    SandboxStartError,
    UsageError,
)
from arl_tangram.integrations.rollouts.tool import Tool
from arl_tangram.integrations.rollouts.wording import infrastructure_error, is_own, text_of, words_for
from arl_tangram.model.quantities import seconds
from arl_tangram.trajectories import Trajectory, trajectory_var
from arl_tangram.uninterrupted import settled, unstoppable

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Used:
    """How a call of a tool ended, as far as the model is concerned.

    Attributes:
        text: what the model is told.
        ok: whether the tool returned something.
        error: else the name of the error's class.
    """

    text: str
    ok: bool
    error: str | None = None


class Rollout:
    """One rollout; entered with `async with`, which waits for nothing.

    Its calls are in one trajectory, which is opened before the first of them and closed when it is left, with its
    sandbox. While it is entered, `current_rollout()` returns it. It takes calls on the event loop where it was entered;
    the runtime may be on another.

    Args:
        runtime: a `Tangram` or a shared runtime that is open.
        group: as for `tangram.trajectory`, such as the id of the prompt.
        image: as for `tangram.trajectory`.
        memory_gib: as for `tangram.trajectory`.
        deadline_s: seconds from when it is entered. What still runs then ends with `RunTimeout`, what still waits with
            `QueueTimeout`, and calls from then on run nothing.

    Raises:
        ConfigurationError: seconds that are not possible.
    """

    def __init__(
        self,
        runtime: Calling,
        *,
        group: str | None = None,
        image: str | None = None,
        memory_gib: float = 0,
        deadline_s: float | None = None,
    ) -> None:
        self._runtime = runtime
        self._group = group
        self._image = image
        self._memory_gib = memory_gib
        self._deadline_s = (
            None if deadline_s is None else seconds(deadline_s, "Rollout(deadline_s=)", ConfigurationError)
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end_at_s: float | None = None
        self._opening: asyncio.Task[Trajectory] | None = None
        self._is_over = False
        self._previous: Rollout | None = None
        self._failure: InfrastructureError | None = None
        self._listeners: list[Callable[[InfrastructureError], None]] = []

    async def __aenter__(self) -> Self:
        """Become the current rollout; its time begins now."""
        if self._loop is not None:
            raise UsageError("a rollout can be entered once")
        self._loop = asyncio.get_running_loop()
        if self._deadline_s is not None:
            self._end_at_s = self._loop.time() + self._deadline_s
        self._previous = rollout_var.get()
        rollout_var.set(self)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End its calls that still wait or run, and close its trajectory; bounded. Cancelling takes effect then."""
        rollout_var.set(self._previous)
        self._is_over = True
        if self._opening is not None:
            closing = unstoppable(self._close(self._opening))
            await settled(closing)
            closing.result()

    @staticmethod
    async def _close(opening: asyncio.Task[Trajectory]) -> None:
        opening.cancel()
        await asyncio.wait([opening])
        if not opening.cancelled() and opening.exception() is None:
            await opening.result().aclose()

    @property
    def failure(self) -> InfrastructureError | None:
        """The first failure of the infrastructure in it, for which its sample must be masked; later calls raise it."""
        return self._failure

    @property
    def left_s(self) -> float | None:
        """Seconds until its deadline, from 0; None if it has none, or is not entered yet."""
        if self._end_at_s is None or self._loop is None:
            return None
        return max(self._end_at_s - self._loop.time(), 0.0)

    def on_failure(self, tell: Callable[[InfrastructureError], None]) -> None:
        """Have something told of the first failure of the infrastructure; at once if there was one."""
        if self._failure is not None:
            tell(self._failure)
        else:
            self._listeners.append(tell)

    def lift_deadline(self) -> None:
        """Let calls from now on have no other bounds than their own: for a reward, which is not the model's time."""
        self._end_at_s = None

    async def call(self, action: BoundAction[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Schedule a call of an action in the trajectory of this rollout, and return what its body returns.

        Raises:
            InfrastructureError: the infrastructure failed, now or earlier in this rollout.
            RunTimeout: the body ran for too long, or the deadline of the rollout has passed.
            UsageError: the rollout is not entered, or was left, or is on another event loop.
            TangramError: as for `tangram.run`; what the body raises passes unchanged.
        """
        invocable = invocable_of(action)
        if (owner := getattr(action, "__self__", None)) is not None:
            args = (owner, *args)
        self._check()
        if self.left_s == 0:
            raise RunTimeout(f"{invocable.spec.name} was called when the time of its rollout was over")
        try:
            trajectory = await self._opened(invocable)
            token = trajectory_var.set(trajectory)
            try:
                return await self._runtime.invoke(self._bounded(invocable), args, kwargs)
            finally:
                trajectory_var.reset(token)
        except Exception as error:
            if (failure := infrastructure_error(error)) is not None:
                self._fail(failure)
            raise

    async def set_up(self, action: BoundAction[..., Any], /, *args: Any, **kwargs: Any) -> None:
        """Call an action that prepares the sandbox before the model's first turn, as `call` does.

        Raises:
            SandboxStartError: it ran for too long, or out of memory, or ended its process: no doing of the model, which
                comes after it, so that the sample is to be masked.
            TangramError: as for `call`; what else the body raises passes unchanged.
        """
        try:
            await self.call(action, *args, **kwargs)
        except (RunTimeout, OutOfMemoryError, BodyExitedError) as error:
            name = invocable_of(action).spec.name
            failure = SandboxStartError(f"{name}, which sets up a sandbox, failed: {type(error).__name__}: {error}")
            self._fail(failure)
            raise failure from error

    async def use(self, tool: Tool, arguments: object, given: Mapping[str, Any] = _NOTHING) -> Used:
        """Call a tool for a model, and return what the model is told.

        What is the doing of the model or of the tool is told as a text: arguments that do not fit, an error of the
        body, a body that ran for too long.

        Args:
            tool: what to call.
            arguments: what the model gives, from JSON: an object.
            given: values of the parameters that the model does not give.

        Raises:
            InfrastructureError: the infrastructure failed, now or earlier in this rollout: mask the sample.
            TangramError: something is declared or used in a wrong way, such as a cost that no pool can meet.
        """
        self._check()
        if not isinstance(tool, Tool):  # pyright: ignore[reportUnnecessaryIsInstance] - nobody checks types at a trainer
            raise UsageError(f"use() takes a Tool, as Tool.declare makes one of an action, not {tool!r}")
        if self.left_s == 0:
            text = f"Error: {tool.name} was not called: the time for this task is over"
            return Used(text, ok=False, error=RunTimeout.__name__)
        try:
            result = await self.call(tool.action, **tool.arguments(arguments, given))
            return Used(text_of(result), ok=True)
        except Exception as error:
            if infrastructure_error(error) is not None or not is_own(error):
                raise
            return Used(words_for(error, tool.name), ok=False, error=type(error).__name__)

    def _check(self) -> None:
        if self._loop is None or self._is_over:
            raise UsageError("a rollout takes calls inside its `async with`")
        if asyncio.get_running_loop() is not self._loop:
            raise UsageError("a rollout takes calls on the event loop where it was entered")
        if self._failure is not None:
            raise self._failure

    def _fail(self, failure: InfrastructureError) -> None:
        if self._failure is None:
            self._failure = failure
            listeners, self._listeners = self._listeners, []
            for tell in listeners:
                tell(failure)

    async def _opened(self, invocable: Invocable) -> Trajectory:
        """Return the trajectory; the first call opens it, and calls meanwhile wait for the same one.

        A task of its own opens it, so that a call which is cancelled takes it away from no other.
        """
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        opening, limits = self._opening, [self.left_s, invocable.spec.queue_timeout]
        if not opening.done():
            await asyncio.wait([opening], timeout=min((s for s in limits if s is not None), default=None))
        if not opening.done():
            raise QueueTimeout(f"{invocable.spec.name} waited for the sandbox of its rollout without getting it")
        if opening.cancelled():
            raise NoTrajectoryError(f"the rollout was left while {invocable.spec.name} waited for its sandbox")
        return opening.result()

    async def _open(self) -> Trajectory:
        trajectory = self._runtime.trajectory(image=self._image, memory_gib=self._memory_gib, group=self._group)
        return await trajectory.__aenter__()  # it is left by `_close`, in another task

    def _bounded(self, invocable: Invocable) -> Invocable:
        """Return a call that waits and runs for no longer than until the deadline."""
        left_s, spec = self.left_s, invocable.spec
        if left_s is None:
            return invocable
        left_s = max(left_s, 1e-3)
        waits_s = left_s if spec.queue_timeout is None else min(spec.queue_timeout, left_s)
        return replace(invocable, spec=replace(spec, queue_timeout=waits_s, end_at_s=self._end_at_s))


def current_rollout() -> Rollout | None:
    """Return the rollout that this is said in; None outside of one."""
    return rollout_var.get()


async def use_alone(runtime: Calling, tool: Tool, arguments: object, given: Mapping[str, Any] = _NOTHING) -> Used:
    """Call a tool for a model where there is no rollout: in a trajectory, and a sandbox, for this call only.

    Raises:
        InfrastructureError: the infrastructure failed: mask the sample.
        TangramError: as for `Rollout.use`.
    """
    async with Rollout(runtime) as rollout:
        return await rollout.use(tool, arguments, given)


rollout_var: ContextVar[Rollout | None] = ContextVar("arl_tangram_rollout", default=None)
