"""What the actors of a shared runtime are called. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from arl_tangram.errors import ConfigurationError

NAMESPACE = "arl_tangram"
"""Ray's namespace of all actors of this library: that of a job is anonymous, and unknown to other jobs."""

_NODE = "/node/"
_NAME = re.compile(r"[\w.-]{1,200}", re.ASCII)


class SharedName(NamedTuple):
    """The name of a shared runtime, unique in a cluster.

    Attributes:
        name: as its users call it.
        job: Ray's id of the job that has opened it, in hexadecimal digits; it does not outlive that job.
    """

    name: str
    job: str

    @property
    def owner(self) -> str:
        """How its owner's actor is called."""
        return f"{self.name}@{self.job}"

    def agent(self, node: str) -> str:
        """How the actor of the agent of a node is called."""
        return f"{self.owner}{_NODE}{node}"


def check_name(name: object, where: str) -> str:
    """Return a name for a shared runtime, or for a node of one; `where` begins the message.

    Raises:
        ConfigurationError: it cannot be one.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigurationError(f"{where}: letters, digits, '-', '_' and '.', at most 200, make a name, not {name!r}")
    return name


def named(node: str) -> str:
    """Return what a node is called in messages: the only one of a runtime has no name."""
    return f"node {node!r}" if node else "the node"


def shared_name(actor: str) -> SharedName | None:
    """Return the name of the shared runtime whose owner an actor is; None if it is no owner."""
    name, _, job = actor.partition("@")
    return SharedName(name, job) if name and job and "/" not in job else None


def chosen(name: str, job: str, actors: Iterable[str], *, any_job: bool) -> SharedName | None:
    """Return which shared runtime is meant: that of this job, else the only one of another.

    Args:
        name: what is asked for.
        job: where it is looked for first.
        actors: the names of all actors in our namespace.
        any_job: whether it may be of another job.
    """
    found = [one for one in map(shared_name, actors) if one is not None and one.name == name]
    own = [one for one in found if one.job == job]
    if own or not any_job:
        return own[0] if own else None
    return found[0] if len(found) == 1 else None


def not_found(name: str, job: str | None, actors: Iterable[str], timeout_s: float) -> str:
    """Say why none was chosen: the text of the `NoSharedRuntimeError`."""
    found = sorted({one for one in map(shared_name, actors) if one is not None})
    same = [one.job for one in found if one.name == name]
    if job is None and len(same) > 1:
        return f"{len(same)} jobs share a runtime of the name {name!r}; say which, as job=: {', '.join(same)}"
    where = "" if job is None else f" in job {job}"
    there = ", ".join(f"{one.name!r} of job {one.job}" for one in found)
    return f"no shared runtime {name!r}{where} was there within {timeout_s:g} s; there are: {there or 'none'}"
