"""Ray, the library: the only module that imports it, lazily, with as much of its interface as is used here."""

from __future__ import annotations

import asyncio
import importlib
import os
import pickle
import re
import sys
import threading
import warnings
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, cast

from arl_tangram.errors import ConfigurationError, MissingExtraError, NoSharedRuntimeError
from arl_tangram.integrations.ray.connection import CONNECTING, Connection
from arl_tangram.integrations.ray.lines import LineError
from arl_tangram.integrations.ray.naming import NAMESPACE

MOST_CALLS = 10_000
"""Calls of an actor that may go on at once. Ray's own 1000 would keep a `hello` waiting behind those who listen."""

_FOREVER = -1


class Handle(Protocol):
    """An actor's handle; its methods are attributes, each with `remote(...)`, which returns a `Reference`."""

    def __getattr__(self, name: str) -> Any: ...


class Reference(Protocol):
    """What a call of an actor will return; it can be awaited on any event loop."""

    def __await__(self) -> Any: ...

    def future(self) -> Any:
        """Return it as a future of `concurrent.futures`."""
        ...


@dataclass(frozen=True, slots=True)
class RayNode:
    """A machine of the cluster, or what stands for one.

    Attributes:
        id: Ray's name of it.
        host: its host name.
        resources: what Ray has there, by name.
        is_head: whether the cluster's head runs there.
    """

    id: str
    host: str
    resources: Mapping[str, float]
    is_head: bool


class Library:
    """Ray as this process is connected to it; made by `connected`.

    Args:
        ray: the module.
        connection: that was made by this library and not by the program; it ends with the last that uses it.
    """

    def __init__(self, ray: Any, connection: Connection | None = None) -> None:
        self._ray = ray
        self._connection = connection

    @property
    def job(self) -> str:
        """Ray's id of the job that this process belongs to."""
        return str(self._ray.get_runtime_context().get_job_id())

    @property
    def node_id(self) -> str:
        """Ray's id of the machine that this process is on."""
        return str(self._ray.get_runtime_context().get_node_id())

    def nodes(self) -> tuple[RayNode, ...]:
        """Return the machines that are alive, the head first. Blocks."""
        found = [
            RayNode(
                id=str(node["NodeID"]),
                host=str(node["NodeManagerHostname"]),
                resources=dict(node["Resources"]),
                is_head="node:__internal_head__" in node["Resources"],
            )
            for node in self._ray.nodes()
            if node["Alive"]
        ]
        return tuple(sorted(found, key=lambda node: (not node.is_head, node.host, node.id)))

    def actor_names(self) -> tuple[str, ...]:
        """Return the names of the actors in our namespace that are alive, or are being started. Blocks."""
        named = cast("list[dict[str, str]]", self._ray.util.list_named_actors(all_namespaces=True))
        return tuple(one["name"] for one in named if one["namespace"] == NAMESPACE)

    def find(self, name: str) -> Handle | None:
        """Return the actor of a name in our namespace; it does not keep it alive. Blocks for a round trip."""
        try:
            return cast(Handle, self._ray.get_actor(name, namespace=NAMESPACE))
        except ValueError:
            return None

    def start(
        self,
        kind: type,
        name: str,
        arguments: tuple[Any, ...],
        *,
        node_id: str | None = None,
        resources: Mapping[str, float] | None = None,
    ) -> Handle | None:
        """Start an actor that Ray starts again whenever it dies, and that ends with its handle or with this process.

        Args:
            kind: its class.
            name: in our namespace.
            arguments: of its class; they are kept for when it is started again.
            node_id: the machine that it must be on; None for any.
            resources: of Ray, that it holds.

        Returns:
            None if there is one of that name.

        Raises:
            ConfigurationError: Ray refuses it, as for what `resources` are said, or cannot send the arguments.
        """
        options: dict[str, Any] = {
            "name": name,
            "namespace": NAMESPACE,
            "num_cpus": 0,
            "max_restarts": _FOREVER,
            "max_task_retries": 0,
            "max_concurrency": MOST_CALLS,
        }
        if node_id is not None:
            strategies = self._ray.util.scheduling_strategies
            options["scheduling_strategy"] = strategies.NodeAffinitySchedulingStrategy(node_id, soft=False)
        if resources:
            options["resources"] = dict(resources)
        try:
            return cast(Handle, self._ray.remote(kind).options(**options).remote(*arguments))
        except ValueError as error:
            if self.find(name) is not None:  # the name is taken
                return None
            raise ConfigurationError(f"Ray starts no actor {name!r}: {error}") from error
        except (TypeError, pickle.PicklingError) as error:  # with a page of text about what cannot be pickled
            found = _FAILED.search(str(error))
            text = str(error) if found is None else found[1]
            raise ConfigurationError(f"what was declared cannot be sent to the actor {name!r}: {text}") from error

    def was_restarted(self) -> bool:
        """Whether this process is an actor that has died before."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it asks another of its own functions that is deprecated
            return bool(self._ray.get_runtime_context().was_current_actor_reconstructed)

    def end(self, actor: Handle) -> None:
        """Kill an actor for good."""
        with suppress(Exception):  # it is dead, or the cluster is
            self._ray.kill(actor, no_restart=True)

    def give_up(self) -> None:
        """Use the connection no more: it ends if it was made by this library and nothing else uses it. Blocks.

        Idempotent.
        """
        with CONNECTING:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.leave()

    async def answer(self, ask: Callable[[], Reference]) -> Any:
        """Call an actor and return what it returns. Cancelling gives up the answer, and nothing there.

        Raises:
            LineError: no answer.
        """
        try:
            return await cast("Awaitable[Any]", ask())
        except Exception as error:
            raise _line_error(self._ray, error) from error

    def answer_now(self, ask: Callable[[], Reference], limit_s: float) -> Any:
        """Do the same, and block for it.

        Raises:
            LineError: no answer within the limit.
        """
        try:
            return ask().future().result(limit_s)  # not ray.get(), which warns on a thread with an event loop
        except TimeoutError as error:
            raise LineError(f"no answer within {limit_s:g} s") from error
        except Exception as error:
            raise _line_error(self._ray, error) from error


def find_ray() -> Any:
    """Import Ray.

    Raises:
        MissingExtraError: it is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # who uses this library does not mean to report to anybody
    try:
        ray = importlib.import_module("ray")
        importlib.import_module("ray.util.scheduling_strategies")
    except ImportError as error:
        raise MissingExtraError(
            "a shared runtime needs Ray, which is not installed: pip install 'arl-tangram[ray]'"
        ) from error
    return ray


def in_worker() -> bool:
    """Return whether this process runs an actor of Ray."""
    ray = sys.modules.get("ray")
    return ray is not None and ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None


def connected(*, start: bool, limit_s: float | None = None) -> Library:
    """Return Ray with a connection: the one that this process has, else a new one. Blocks, for seconds.

    One that was not there in time goes on, as nothing ends it, and is taken as soon as it is there. There is never a
    second one beside it: Ray cannot have that.

    Args:
        start: whether a cluster of this machine may be started if none is found.
        limit_s: seconds for that, `LEAST_CONNECT_S` at least; None for any. Ray itself waits without end for a cluster
            that does not answer.

    Raises:
        MissingExtraError: Ray is not installed.
        NoSharedRuntimeError: there is no cluster, or it cannot be joined, or not in time.
    """
    ray = find_ray()
    with CONNECTING:
        late = Connection.late()
        if late is None and ray.is_initialized():
            return Library(ray, Connection.join())
        connection = Connection(ray, None if start else "auto") if late is None else late
        try:
            connection.open(None if limit_s is None else max(limit_s, LEAST_CONNECT_S))
        except Exception as error:  # of many types, by how an address is wrong
            text = "; ".join(str(error).split("\n")) or repr(error)
            raise NoSharedRuntimeError(f"this process cannot join a Ray cluster: {text}") from error
        return Library(ray, connection)


LEAST_CONNECT_S = 30.0
"""To join a cluster, or to start one, on a busy machine."""
_FAILED = re.compile(r"FAIL\S* serialization: (.+)")  # FAIL may be in colour
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def _line_error(ray: Any, error: Exception) -> LineError:
    plain = _COLOURS.sub("", f"{type(error).__name__}: {error}")
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    text = lines[0] if len(lines) == 1 else f"{lines[0]} … {lines[-1]}"  # in between is the traceback there
    died = isinstance(error, ray.exceptions.ActorDiedError)
    return LineError(text, gone=died, for_good=died, unmade=getattr(error, "actor_init_failed", False))


async def off_loop(work: Callable[[], Any]) -> Any:
    """Do what blocks on a thread of its own, which a process that leaves does not wait for."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def tell(value: Any, error: Exception | None) -> None:
        if not done.done():
            done.set_result(value) if error is None else done.set_exception(error)

    def run() -> None:
        try:
            value, error = work(), None
        except Exception as found:  # noqa: BLE001 - raised where it is awaited
            value, error = None, found
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, value, error)

    threading.Thread(target=run, name="arl_tangram ray", daemon=True).start()
    return await done
