"""`share` and `connect`: declare a shared runtime, or name one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from arl_tangram.errors import ConfigurationError
from arl_tangram.integrations.ray import configuration, placing
from arl_tangram.integrations.ray.client.shared import Shared
from arl_tangram.integrations.ray.installed import find_ray
from arl_tangram.integrations.ray.naming import check_name
from arl_tangram.integrations.ray.placing import Node
from arl_tangram.integrations.ray.reaching import Plan, find, make
from arl_tangram.model.quantities import seconds
from arl_tangram.runtime import Tangram

__all__ = ["Node", "Shared", "connect", "share"]


def share(
    factory: Callable[[], Tangram],
    *,
    name: str = "tangram",
    nodes: Sequence[Node] | None = None,
    lease_s: float = 30,
    start_timeout_s: float = 120,
) -> Shared:
    """Return a runtime that other processes can share, to be opened with `async with`, `with` or `start`.

    Opening it starts an actor with the scheduler and an agent on each node, or joins the runtime of this name in this
    job of Ray if it is declared alike. They end when it is closed, and with this process. Other processes use
    `connect(name)`. If this process is not connected to a Ray cluster, it joins the one that `RAY_ADDRESS` or
    `ray start` tells, else starts one of this machine.

    Args:
        factory: returns a `Tangram` that is not opened: its pools, quotas, policy and order are shared. Called here, by
            the actor and on each node, so that Ray must be able to send it there.
        name: letters, digits, `-`, `_` and `.`.
        nodes: which pools are where; then the factory declares none. Without it, each machine of the cluster has the
            pools of the factory.
        lease_s: a process that is not heard of for so long loses what it holds: its commands are ended, and its units
            go to others. They notice that it is dead after a little more than that.
        start_timeout_s: seconds until all agents must be up.

    Raises:
        MissingExtraError: Ray is not installed.
        ConfigurationError: a value that is not possible, when it is opened, too: no such machine, a pool that cannot be
            opened there, or (`ConfigurationMismatchError`) another configuration under the same name.
        NoSharedRuntimeError: when it is opened: the cluster cannot be joined, or does not answer in time.
        VersionMismatchError: when it is opened: one of that name is of another version of the library.
        InfrastructureError: when it is opened: the actors did not start in time.
    """
    find_ray()
    check_name(name, "share(name=)")
    lines = _declared(factory, nodes, "share()")
    plan = Plan(
        name,
        factory,
        None if nodes is None else tuple(nodes),
        lines,
        seconds(lease_s, "share(lease_s=)", ConfigurationError),
        seconds(start_timeout_s, "share(start_timeout_s=)", ConfigurationError),
    )
    return Shared(partial(make, plan), name=name, timeout_s=plan.start_timeout_s)


def connect(
    name: str = "tangram",
    *,
    expect: Callable[[], Tangram] | None = None,
    job: str | None = None,
    timeout: float = 30,
) -> Shared:
    """Return the shared runtime of a name, to be opened with `async with`, `with` or `start`; closing it ends nothing.

    Args:
        name: as it was given to `share`.
        expect: what it must have been declared with, but for `nodes`; None for anything.
        job: Ray's id of the job that has opened it; by default that of this process, else the only one that has.
        timeout: seconds, when it is opened, to join the cluster (half a minute at least), then until it must be there,
            and then for its scheduler to answer.

    Raises:
        MissingExtraError: Ray is not installed.
        ConfigurationError: a value that is not possible.
        NoSharedRuntimeError: when it is opened: there is none, or there is no cluster that answers.
        ConfigurationMismatchError: when it is opened: it is not what was expected.
        VersionMismatchError: when it is opened: it is of another version of the library.
    """
    find_ray()
    check_name(name, "connect(name=)")
    given = cast(object, job)
    if not isinstance(given, str | None):
        raise ConfigurationError(f"connect(job=) takes Ray's id of a job, such as '01000000', not {given!r}")
    timeout_s = seconds(timeout, "connect(timeout=)", ConfigurationError)
    lines = None if expect is None else _declared(expect, None, "connect(expect=)")
    return Shared(partial(find, name, job, lines, timeout_s), name=name, timeout_s=timeout_s)


def _declared(factory: Callable[[], Tangram], nodes: Sequence[Node] | None, where: str) -> tuple[str, ...]:
    """Return the lines of a configuration.

    Raises:
        ConfigurationError: the factory returns no `Tangram`, or pools are declared twice.
    """
    given: object = factory
    made: object = given() if callable(given) else None
    if not isinstance(made, Tangram):
        raise ConfigurationError(f"{where} takes a function that returns a Tangram, not {factory!r}")
    setup = made.setup
    if setup.share is not None:
        raise ConfigurationError(
            f"{where}: {type(setup.pool).__name__}(share=) is for a runtime of one process; in a shared runtime, "
            "running actions keep their cores: leave it out"
        )
    if nodes is None:
        return configuration.describe(setup)
    if setup.pool is not None or setup.gpus is not None:
        raise ConfigurationError(
            f"{where}: with nodes=, the pools are those of the nodes, and the factory declares none"
        )
    return configuration.describe(setup, placing.declared(nodes))
