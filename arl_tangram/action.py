"""Declare actions: the decorator, the types of what it returns, and calling by name (`run`)."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, Self, TypeVar, cast, overload

from arl_tangram.context import Invocable, current_runtime
from arl_tangram.errors import DefinitionError, InfrastructureError, UsageError
from arl_tangram.model.cost import Cost, QuotaUse, declare_cost
from arl_tangram.model.elasticity import Elastic
from arl_tangram.model.lifecycle import ActionSpec, BodyKind
from arl_tangram.model.quantities import seconds, whole
from arl_tangram.retrying import NEVER

P = ParamSpec("P")
Q = ParamSpec("Q")
Errors = type[Exception] | tuple[type[Exception], ...]
S = TypeVar("S")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_MOST_RETRIES = 100
_OPTIONS = frozenset({"priority", "timeout", "queue_timeout", "idempotent", "retries", "retry_on", "preemptible"})
"""What `with_options` takes."""


class BoundAction(Protocol[P, R_co]):
    """What can be run: an action, or one bound to its instance."""

    __name__: str
    __qualname__: str

    @property
    def spec(self) -> ActionSpec:
        """What was declared."""
        ...

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Schedule a call on the current runtime and return what the body returns."""
        ...


class Action(BoundAction[P, R_co], Protocol[P, R_co]):
    """A declared action: a coroutine function with `body`, `spec` and `with_options`."""

    def with_options(
        self,
        *,
        priority: int = ...,
        timeout: float | None = ...,
        queue_timeout: float | None = ...,
        idempotent: bool = ...,
        retries: int = ...,
        retry_on: Errors = ...,
        preemptible: bool = ...,
    ) -> Self:
        """Return a copy with other options.

        Raises:
            DefinitionError: for values that the decorator would refuse.
        """
        ...

    @overload
    def __get__(self, instance: None, owner: type[Any], /) -> Self: ...
    @overload
    def __get__(
        self: Action[Concatenate[S, Q], R], instance: S, owner: type[Any] | None = None, /
    ) -> BoundAction[Q, R]: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None, /) -> Self: ...


class AsyncAction(Action[P, R_co], Protocol[P, R_co]):
    """An action whose body is an `async def` function."""

    @property
    def body(self) -> Callable[P, Coroutine[Any, Any, R_co]]:
        """The undecorated function."""
        ...


class SyncAction(Action[P, R_co], Protocol[P, R_co]):
    """An action whose body is a plain function; it runs on a thread or in a worker process of the library."""

    @property
    def body(self) -> Callable[P, R_co]:
        """The undecorated function."""
        ...


class Decorator(Protocol):
    """What `action(...)` returns."""

    @overload
    def __call__(self, body: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncAction[P, R]: ...
    @overload
    def __call__(self, body: Callable[P, R], /) -> SyncAction[P, R]: ...


def action(
    *,
    cpu: float | Elastic = 0,
    memory_gib: float = 0,
    quota: Mapping[str, float | QuotaUse] | None = None,
    service: str | None = None,
    gpu: int | Elastic = 0,
    isolate: Literal["thread", "process"] | None = None,
    priority: int = 0,
    timeout: float | None = None,
    queue_timeout: float | None = None,
    duration_s: float | None = None,
    key: Callable[..., str] | None = None,
    idempotent: bool = False,
    retries: int = 0,
    retry_on: Errors = (InfrastructureError,),
    preemptible: bool = True,
) -> Decorator:
    """Declare a function as an action.

    The decorated function keeps its signature and is a coroutine function: awaiting it schedules
    the body on the current runtime.

    Args:
        cpu: cores, as a number (to a thousandth) or an `Elastic` range of whole cores.
        memory_gib: GiB of host memory, taken while the body runs; inside a trajectory that holds memory,
            it is part of that, and must fit in it.
        quota: calls per quota, `{name: calls}`; they count against the rates, the concurrency and the total. With
            `{name: QuotaUse(calls=1, tokens=2000)}` tokens are reserved, too.
        service: the name of a service of the pool of GPUs: it is resident while the body, an `async def`, runs, which
            finds it with `tangram.current_service()`. It is restored first if it has to be.
        gpu: GPUs that the body has to itself, which runs in a process (`isolate="process"`) that sees just these: 1,
            2, 4 or 8, or an `Elastic` range of these; neighbours on one machine.
        isolate: where a plain function runs: `"thread"` (default), or `"process"`, a worker process that is pinned
            to the granted cores and can be killed; its arguments and its result are pickled.
        priority: lower first; no action starves within one priority.
        timeout: seconds that the body may run, above 0; then it is cancelled and the caller gets
            `RunTimeout`. A body in a process is killed. One on a thread cannot be ended: its units stay in use
            until it returns.
        queue_timeout: seconds that a call may wait, above 0; then `QueueTimeout`.
        duration_s: expected seconds on one core, until real ones are known.
        key: a function of the call's arguments that returns a string; calls with the same key
            share one estimate of their duration.
        idempotent: say that it does no harm to run the body twice with the same arguments.
        retries: how often a call that failed is tried again, at most, from 0 to 100; only with `idempotent=True`.
            Before each attempt there is a pause of up to 0.5 s, then up to twice as much each time, at most 30 s, in
            which nothing is held. `timeout` and `queue_timeout` are for each attempt.
        retry_on: the errors after which it is tried again, subclasses included, as in an `except`. Never after
            `QueueTimeout`, `ShutdownError`, `GroupCancelledError`, `BackendDownError`, `BodyCancelledError`,
            `InfeasibleError` or a `UsageError`, nor when it is cancelled, nor while the body lingers.
        preemptible: whether it may be suspended for a while so that others run, where it runs in the sandbox of a pool
            with `share=`. Next to nothing runs in the sandbox then; `timeout` and the deadlines of its commands stand
            still. Say False of what answers to a clock or to somebody outside, such as a server or a measurement.

    Raises:
        DefinitionError: two elastic resources, amounts that are not possible, `retries=` without `idempotent=True`,
            errors after which nothing is tried again, `service=` on a plain function, `gpu=` on one that runs in no
            process of its own, both, or one of them beside elastic cores, `Elastic(resizable=True)` on a plain function
            or for `gpu=`, a generator function, `isolate=` on an `async def`, a plain function that wraps a coroutine
            function, or `isolate="process"` on a function that no other process can find by its name.
    """

    def decorate(body: Callable[..., Any]) -> Any:
        name = _name(body)
        if _declared(body) is not None:
            raise DefinitionError(f"{name} is an action already; decorate its `.body`, or use `with_options`")
        kind = _kind(name, body, isolate)
        spec = ActionSpec(
            name=name,
            cost=_cost(name, kind, cpu=cpu, memory_gib=memory_gib, quota=quota, service=service, gpu=gpu),
            kind=kind,
            priority=_priority(name, priority),
            timeout=_seconds(name, "timeout", timeout),
            queue_timeout=_seconds(name, "queue_timeout", queue_timeout),
            duration_s=_seconds(name, "duration_s", duration_s),
            key=_key(name, key),
            idempotent=idempotent,
            retries=retries,
            retry_on=_retry_on(name, retry_on),
            preemptible=_preemptible(name, preemptible),
        )
        _check_retries(spec)
        return _scheduled(body, spec)

    return cast(Decorator, decorate)


async def run(action: BoundAction[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Schedule a call of an action on the current runtime; the same as awaiting it directly.

    Raises:
        UsageError: what was given is not an action.
        TangramError: as the errors tree in `arl_tangram.errors` says; what the body raises passes unchanged.
    """
    invocable_of(action)
    return await action(*args, **kwargs)


def invocable_of(function: object) -> Invocable:
    """Return what stands behind a decorated function or a bound one.

    An action is recognised by identity, not by its attributes: an outer decorator that uses
    `functools.wraps` carries those along.

    Raises:
        UsageError: it is not an action.
    """
    invocable = _declared(getattr(function, "__func__", function))
    if invocable is None:
        raise UsageError(f"{function!r} is not an action; decorate it with @tangram.action(...)")
    return invocable


def _declared(function: object) -> Invocable | None:
    """Return what stands behind a function if it is an action itself, and not something that wraps one."""
    declared = getattr(function, "__dict__", {}).get("_invocable")
    return cast(Invocable, declared[1]) if declared is not None and declared[0] is function else None


def _scheduled(body: Callable[..., Any], spec: ActionSpec) -> Any:
    signature = _signature(spec.name, body)
    invocable = Invocable(spec=spec, body=body, signature=signature, positional=_positional(signature))

    @functools.wraps(body)
    async def scheduled(*args: Any, **kwargs: Any) -> Any:
        return await current_runtime().invoke(invocable, args, kwargs)

    def with_options(**options: Any) -> Any:
        unknown = options.keys() - _OPTIONS
        if unknown:
            raise DefinitionError(f"{spec.name}: with_options() takes no {', '.join(sorted(unknown))}")
        for what in options.keys() & {"timeout", "queue_timeout"}:
            options[what] = _seconds(spec.name, what, options[what])
        if "priority" in options:
            options["priority"] = _priority(spec.name, options["priority"])
        if "retry_on" in options:
            options["retry_on"] = _retry_on(spec.name, options["retry_on"])
        if "preemptible" in options:
            options["preemptible"] = _preemptible(spec.name, options["preemptible"])
        other = replace(spec, **options)
        _check_retries(other)
        return _scheduled(body, other)

    vars(scheduled).update(body=body, spec=spec, with_options=with_options, _invocable=(scheduled, invocable))
    return scheduled


def _name(body: object) -> str:
    if not callable(body) or not hasattr(body, "__qualname__") or not hasattr(body, "__module__"):
        raise DefinitionError(f"@action(...) takes a function, not {body!r}")
    return f"{body.__module__}:{body.__qualname__}"


def _positional(signature: inspect.Signature) -> range:
    """Return how many positional arguments fit when there are no keywords."""
    kinds = inspect.Parameter
    parameters = signature.parameters.values()
    if any(p.kind is kinds.KEYWORD_ONLY and p.default is kinds.empty for p in parameters):
        return range(0)
    positional = [p for p in parameters if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
    required = sum(p.default is kinds.empty for p in positional)
    unbounded = any(p.kind is kinds.VAR_POSITIONAL for p in parameters)
    return range(required, sys.maxsize if unbounded else len(positional) + 1)


def _signature(name: str, body: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(body)
    except ValueError:
        raise DefinitionError(f"{name} has no signature that can be read; wrap it in a function of your own") from None


def _kind(name: str, body: Callable[..., Any], isolate: str | None) -> BodyKind:
    if isolate not in (None, "thread", "process"):
        raise DefinitionError(f"{name}: isolate= takes 'thread' or 'process', not {isolate!r}")
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise DefinitionError(f"{name} is a generator function; an action returns one value")
    if inspect.iscoroutinefunction(body):
        if isolate is not None:
            raise DefinitionError(f"{name} is an `async def`; isolate= is for plain functions")
        return BodyKind.ASYNC
    if inspect.isclass(body):
        raise DefinitionError(f"{name} is a class; an action is a function")
    if inspect.iscoroutinefunction(inspect.unwrap(body)):
        raise DefinitionError(f"{name} is a plain function around a coroutine function; make it `async def`")
    if isolate == "process":
        if "<" in body.__qualname__:
            raise DefinitionError(
                f"{name} is defined inside a function, or a lambda; isolate='process' needs a body at the top of a "
                "module or of a class, where a worker process finds it by its name"
            )
        return BodyKind.PROCESS
    return BodyKind.THREAD


def _cost(name: str, kind: BodyKind, **amounts: Any) -> Cost:
    cost = declare_cost(name, **amounts)
    if cost.service is not None and kind is not BodyKind.ASYNC:
        raise DefinitionError(f"{name}: service= is for `async def` bodies, which await the calls of their service")
    if cost.gpu and kind is not BodyKind.PROCESS:
        raise DefinitionError(f"{name}: gpu= needs isolate='process': only a process can be shown just these GPUs")
    if isinstance(cost.cpu, Elastic) and cost.cpu.resizable and kind is not BodyKind.ASYNC:
        raise DefinitionError(
            f"{name}: cpu=Elastic(..., resizable=True) is for `async def` bodies, which run in a sandbox; a plain "
            "function keeps the cores with which it began"
        )
    return cost


def _seconds(name: str, what: str, value: object) -> float | None:
    return None if value is None else seconds(value, f"{name}: {what}", DefinitionError)


def _priority(name: str, value: object) -> int:
    return whole(value, f"{name}: priority", DefinitionError, least=-(1 << 20))


def _preemptible(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise DefinitionError(f"{name}: preemptible= takes True or False, not {value!r}")
    return value


def _retry_on(name: str, value: object) -> tuple[type[Exception], ...]:
    errors = cast(tuple[object, ...], value) if isinstance(value, tuple) else (value,)
    for error in errors:
        if not (isinstance(error, type) and issubclass(error, Exception)):
            raise DefinitionError(f"{name}: retry_on= takes subclasses of Exception, not {error!r}")
        if issubclass(error, NEVER):
            raise DefinitionError(f"{name}: a call is never tried again after {error.__name__}")
    return cast(tuple[type[Exception], ...], errors)


def _check_retries(spec: ActionSpec) -> None:
    if not isinstance(spec.idempotent, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DefinitionError(f"{spec.name}: idempotent= takes True or False, not {spec.idempotent!r}")
    retries = whole(spec.retries, f"{spec.name}: retries", DefinitionError, least=0, most=_MOST_RETRIES)
    if retries and not spec.idempotent:
        raise DefinitionError(
            f"{spec.name}: retries={retries} needs idempotent=True; an attempt that failed may have done all its work"
        )


def _key(name: str, value: Callable[..., object] | None) -> Callable[..., object] | None:
    if value is not None and not callable(value):
        raise DefinitionError(f"{name}: key= takes a function of the call's arguments, not {value!r}")
    return value
