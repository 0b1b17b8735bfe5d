"""What a call can see from where it stands: the current runtime, trajectory and running action."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from inspect import Signature
from types import TracebackType
from typing import Any, Protocol, Self

from arl_tangram.errors import (
    ForkedRuntimeError,
    InfeasibleError,
    NoActionError,
    NoRuntimeError,
    NoSandboxError,
    NoServiceError,
)
from arl_tangram.model.allocation import Allocation
from arl_tangram.model.lifecycle import ActionSpec, BodyKind
from arl_tangram.model.sandbox import Sandbox
from arl_tangram.model.service import Service


@dataclass(frozen=True, slots=True, eq=False)
class Invocable:
    """What a runtime needs to know of an action.

    Attributes:
        spec: its declaration.
        body: the undecorated function.
        signature: of the body.
        positional: with no keywords, these numbers of positional arguments fit the signature.
    """

    spec: ActionSpec
    body: Callable[..., Any]
    signature: Signature
    positional: range


class TrajectoryScope(Protocol):
    """A trajectory, as whoever opens it sees it: enter it with `async with`."""

    @property
    def id(self) -> int:
        """Unique in its runtime."""
        ...

    @property
    def group(self) -> str | None:
        """The name of the group that it belongs to."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether actions can be called in it."""
        ...

    async def __aenter__(self) -> Self:
        """Wait until it is admitted and has its sandbox; it is then the current trajectory."""
        ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End its actions and remove its sandbox."""
        ...

    def __enter__(self) -> Self:
        """Do the same where no event loop runs."""
        ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Do the same where no event loop runs."""
        ...


class Runtime(Protocol):
    """What the decorator and the module-level functions ask of a runtime."""

    @property
    def open_on(self) -> asyncio.AbstractEventLoop | None:
        """The event loop on which it is open; None if it is not."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether it accepts actions."""
        ...

    @property
    def pid(self) -> int:
        """The process that opened it."""
        ...

    def trajectory(self, *, image: str | None, memory_gib: float, group: str | None) -> TrajectoryScope:
        """Return a trajectory to be entered."""
        ...

    def invoke(self, action: Invocable, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Coroutine[Any, Any, Any]:
        """Check one call at once; awaiting what is returned schedules it and returns what its body returns."""
        ...

    def invoke_sync(self, action: Invocable, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Make one call and block for what its body returns; where no event loop runs."""
        ...


class Quota(Protocol):
    """What a body can see of a quota that it holds, and say about it."""

    @property
    def key(self) -> str | None:
        """Which of the quota's keys the call takes; None if it has none."""
        ...

    def retry_after(self, value: float | str, *, date: str | None = None) -> None:
        """Grant nothing of this quota, or of this key of it, for some time from now; the latest deadline counts.

        Args:
            value: seconds from 0, as a number or as the text of a `Retry-After` header, or an HTTP date as text.
            date: the `Date` header of the same answer, to count an HTTP date from.

        Raises:
            ValueError: neither finite seconds from 0 nor an HTTP date.
        """
        ...

    def settle(self, *, tokens: float | None = None, calls: float | None = None) -> None:
        """Say what the call really used; what was reserved beyond that is free at once, what is more is charged.

        Args:
            tokens: tokens used, from 0; None to leave what was reserved.
            calls: calls made, from 0; None to leave what was granted.

        Raises:
            ValueError: neither of them, or one that is not possible.
            NoActionError: the action has ended.
        """
        ...

    def failed(self) -> None:
        """Tell the quota's breaker, if it has one, that what is behind it does not work; counts at once.

        How a call ends that has said `failed()` or `succeeded()` counts for nothing; one that sends several requests
        may say it for each.

        Raises:
            NoActionError: the action has ended.
        """
        ...

    def succeeded(self) -> None:
        """Tell the quota's breaker, if it has one, that what is behind it works, whatever the body raises later.

        Raises:
            NoActionError: the action has ended.
        """
        ...


class ActiveAction(Protocol):
    """A running action, as the functions below see it."""

    @property
    def name(self) -> str:
        """The action's name."""
        ...

    @property
    def ended(self) -> bool:
        """Whether its caller has been answered."""
        ...

    @property
    def allocation(self) -> Allocation:
        """What it was granted."""
        ...

    @property
    def sandbox(self) -> Sandbox | None:
        """The sandbox it runs in."""
        ...

    @property
    def no_sandbox(self) -> str:
        """Why it runs in none, if so."""
        ...

    @property
    def service(self) -> Service | None:
        """The service that it uses, if any."""
        ...

    def quota(self, name: str) -> Quota | None:
        """Its hold on a quota, or None."""
        ...


running_loop = asyncio._get_running_loop  # None, not an error, if there is none
runtime_var: ContextVar[Runtime | None] = ContextVar("arl_tangram_runtime", default=None)
active_var: ContextVar[ActiveAction | None] = ContextVar("arl_tangram_active", default=None)
open_runtimes: list[Runtime] = []
"""The open runtimes of this process, in the order of opening."""


class _Process:
    """Knows this process; asking at every call would be a call to the system each."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self.pid = os.getpid()


_process = _Process()


def current_runtime() -> Runtime:
    """Return the runtime of this context if it is open, else the only open one of this process.

    Raises:
        NoRuntimeError: none is open, or several are and this context belongs to none of them.
        ForkedRuntimeError: it was opened by the process from which this one was forked.
    """
    runtime = runtime_var.get()
    if runtime is not None and runtime.open_on is not None and runtime.open_on is running_loop():
        return runtime  # the commonest case; a forked child has no running loop at first
    if runtime is None or not runtime.is_open or runtime.pid != _process.pid:
        runtime = _only_open(_process.pid)
        if runtime.pid != _process.pid:
            raise ForkedRuntimeError(
                f"the runtime was opened by process {runtime.pid}; this is its forked child {_process.pid}, "
                "which must open a runtime of its own"
            )
    return runtime


def current_allocation() -> Allocation:
    """Return what the running action was granted.

    Raises:
        NoActionError: outside a running action, or after it has ended.
    """
    return _active("current_allocation()").allocation


def current_sandbox() -> Sandbox:
    """Return the sandbox of the running action's trajectory.

    Only an `async def` action with a `cpu` cost that was submitted inside a trajectory has one.

    Raises:
        NoActionError: outside a running action, or after it has ended.
        NoSandboxError: the action has no sandbox; the message says why.
    """
    active = _active("current_sandbox()")
    if active.sandbox is None:
        raise NoSandboxError(f"{active.name} has no sandbox: {active.no_sandbox}")
    return active.sandbox


def current_service() -> Service:
    """Return the service that the running action uses; it stays on its devices until the action ends.

    Raises:
        NoActionError: outside a running action, or after it has ended.
        NoServiceError: the action declares no service.
    """
    active = _active("current_service()")
    service = active.service
    if service is None:
        raise NoServiceError(f"{active.name} uses no service; declare it with @tangram.action(service=...)")
    return service


def no_sandbox(spec: ActionSpec, *, has_pool: bool) -> str:
    """Say why an action that runs in no sandbox does not: the first condition that is not met.

    Args:
        spec: the action.
        has_pool: whether its runtime has a pool of cores.
    """
    if spec.kind is not BodyKind.ASYNC:
        return "its body is a plain function, and only those of `async def` actions run in one"
    if not spec.cost.minimum_cpu:
        return "it declares no cores, and only actions with cpu= run in one"
    if not has_pool:
        return "its runtime has no pool of cores, such as Tangram(tangram.LocalPool())"
    return "it was called outside of a trajectory of its runtime; call it inside `async with tangram.trajectory()`"


def current_quota(name: str) -> Quota:
    """Return the handle of a quota that the running action holds.

    Raises:
        NoActionError: outside a running action, or after it has ended.
        InfeasibleError: the action does not declare this quota.
    """
    active = _active("current_quota()")
    quota = active.quota(name)
    if quota is None:
        raise InfeasibleError(f"{active.name} holds no quota {name!r}; declare it with quota={{{name!r}: 1}}")
    return quota


def _only_open(pid: int) -> Runtime:
    found = [runtime for runtime in open_runtimes if runtime.is_open]
    found = [runtime for runtime in found if runtime.pid == pid] or found  # a forked child inherits the list
    if len(found) != 1:
        raise NoRuntimeError(
            f"{len(found)} runtimes are open in this process and none of them is current here; use `tg.run(...)` of one"
            if found
            else "no runtime is open in this process; open one with `async with Tangram(...)`"
        )
    return found[0]


def _active(what: str) -> ActiveAction:
    active = active_var.get()
    if active is None:
        raise NoActionError(f"{what} was called outside the body of an action")
    if active.ended:
        raise NoActionError(f"{what} was called by something that {active.name} left behind when it ended")
    return active
