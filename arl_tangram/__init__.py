"""arl_tangram: schedule every tool call and reward of agentic RL on shared cores and quotas."""

from __future__ import annotations

from arl_tangram.action import Action, AsyncAction, BoundAction, SyncAction, action, run
from arl_tangram.context import current_allocation, current_quota, current_sandbox
from arl_tangram.errors import (
    AllocationError,
    ArgumentsError,
    BackendDownError,
    BodyCancelledError,
    BodyExitedError,
    ConfigurationError,
    DefinitionError,
    ForkedRuntimeError,
    GroupCancelledError,
    InfeasibleError,
    InfrastructureError,
    MissingExtraError,
    NestedActionError,
    NoActionError,
    NoRuntimeError,
    NoSandboxError,
    NoTrajectoryError,
    OutOfMemoryError,
    QueueTimeout,
    RemoteError,
    ResultError,
    RuntimeClosedError,
    RunTimeout,
    SandboxLostError,
    SandboxPathError,
    SandboxStartError,
    ShutdownError,
    TangramError,
    UsageError,
    WorkerDiedError,
    WorkerStartError,
    WrongLoopError,
)
from arl_tangram.managers.breaker import Breaker
from arl_tangram.managers.docker.pool import DockerHost, DockerPool
from arl_tangram.managers.local import LocalPool
from arl_tangram.managers.quota import Quota
from arl_tangram.mapping import Failure, map  # noqa: A004 - used as tangram.map
from arl_tangram.model.allocation import Allocation
from arl_tangram.model.cost import QuotaUse
from arl_tangram.model.elasticity import Amdahl, Elastic, Linear, Measured, PowerLaw
from arl_tangram.model.sandbox import ExecResult, Sandbox
from arl_tangram.model.statistics import Statistics
from arl_tangram.runtime import Tangram, run_sync, trajectory
from arl_tangram.scheduling import policies

__version__ = "0.1.0"

__all__ = [
    "Action",
    "Allocation",
    "AllocationError",
    "Amdahl",
    "ArgumentsError",
    "AsyncAction",
    "BackendDownError",
    "BodyCancelledError",
    "BodyExitedError",
    "BoundAction",
    "Breaker",
    "ConfigurationError",
    "DefinitionError",
    "DockerHost",
    "DockerPool",
    "Elastic",
    "ExecResult",
    "Failure",
    "ForkedRuntimeError",
    "GroupCancelledError",
    "InfeasibleError",
    "InfrastructureError",
    "Linear",
    "LocalPool",
    "Measured",
    "MissingExtraError",
    "NestedActionError",
    "NoActionError",
    "NoRuntimeError",
    "NoSandboxError",
    "NoTrajectoryError",
    "OutOfMemoryError",
    "PowerLaw",
    "QueueTimeout",
    "Quota",
    "QuotaUse",
    "RemoteError",
    "ResultError",
    "RunTimeout",
    "RuntimeClosedError",
    "Sandbox",
    "SandboxLostError",
    "SandboxPathError",
    "SandboxStartError",
    "ShutdownError",
    "Statistics",
    "SyncAction",
    "Tangram",
    "TangramError",
    "UsageError",
    "WorkerDiedError",
    "WorkerStartError",
    "WrongLoopError",
    "action",
    "current_allocation",
    "current_quota",
    "current_sandbox",
    "map",
    "policies",
    "run",
    "run_sync",
    "trajectory",
]
