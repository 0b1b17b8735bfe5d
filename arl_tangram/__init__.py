"""arl_tangram: schedule every tool call and reward of agentic RL on shared cores, GPUs and quotas."""

from __future__ import annotations

from arl_tangram.action import Action, AsyncAction, BoundAction, SyncAction, action, run
from arl_tangram.context import current_allocation, current_quota, current_sandbox, current_service
from arl_tangram.errors import (
    AllocationError,
    ArgumentsError,
    BackendDownError,
    BodyCancelledError,
    BodyExitedError,
    ConfigurationError,
    ConfigurationMismatchError,
    DefinitionError,
    EvictedServiceError,
    ForkedRuntimeError,
    GroupCancelledError,
    InfeasibleError,
    InfrastructureError,
    LeaseLostError,
    MissingExtraError,
    NestedActionError,
    NoActionError,
    NodeLostError,
    NoRuntimeError,
    NoSandboxError,
    NoServiceError,
    NoSharedRuntimeError,
    NoTrajectoryError,
    OutOfMemoryError,
    OwnerLostError,
    QueueTimeout,
    RemoteError,
    RestoreError,
    ResultError,
    RuntimeClosedError,
    RunTimeout,
    SandboxLostError,
    SandboxPathError,
    SandboxStartError,
    ServiceLostError,
    ShutdownError,
    TangramError,
    UsageError,
    VersionMismatchError,
    WorkerDiedError,
    WorkerStartError,
    WrongLoopError,
)
from arl_tangram.managers.breaker import Breaker
from arl_tangram.managers.docker.pool import DockerHost, DockerPool
from arl_tangram.managers.gpu.pool import GpuPool
from arl_tangram.managers.local import LocalPool
from arl_tangram.managers.quota import Quota
from arl_tangram.mapping import Failure, map  # noqa: A004 - used as tangram.map
from arl_tangram.model.allocation import Allocation
from arl_tangram.model.cost import QuotaUse
from arl_tangram.model.elasticity import Amdahl, Elastic, Linear, Measured, PowerLaw
from arl_tangram.model.sandbox import ExecResult, Sandbox
from arl_tangram.model.service import Service
from arl_tangram.model.statistics import Statistics
from arl_tangram.runtime import Tangram, run_sync, trajectory
from arl_tangram.scheduling import policies
from arl_tangram.services.engine.probe import Probe
from arl_tangram.services.process import ProcessService
from arl_tangram.services.sglang import SglangService
from arl_tangram.services.torch_service import TorchService
from arl_tangram.services.vllm import VllmService

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
    "ConfigurationMismatchError",
    "DefinitionError",
    "DockerHost",
    "DockerPool",
    "Elastic",
    "EvictedServiceError",
    "ExecResult",
    "Failure",
    "ForkedRuntimeError",
    "GpuPool",
    "GroupCancelledError",
    "InfeasibleError",
    "InfrastructureError",
    "LeaseLostError",
    "Linear",
    "LocalPool",
    "Measured",
    "MissingExtraError",
    "NestedActionError",
    "NoActionError",
    "NoRuntimeError",
    "NoSandboxError",
    "NoServiceError",
    "NoSharedRuntimeError",
    "NoTrajectoryError",
    "NodeLostError",
    "OutOfMemoryError",
    "OwnerLostError",
    "PowerLaw",
    "Probe",
    "ProcessService",
    "QueueTimeout",
    "Quota",
    "QuotaUse",
    "RemoteError",
    "RestoreError",
    "ResultError",
    "RunTimeout",
    "RuntimeClosedError",
    "Sandbox",
    "SandboxLostError",
    "SandboxPathError",
    "SandboxStartError",
    "Service",
    "ServiceLostError",
    "SglangService",
    "ShutdownError",
    "Statistics",
    "SyncAction",
    "Tangram",
    "TangramError",
    "TorchService",
    "UsageError",
    "VersionMismatchError",
    "VllmService",
    "WorkerDiedError",
    "WorkerStartError",
    "WrongLoopError",
    "action",
    "current_allocation",
    "current_quota",
    "current_sandbox",
    "current_service",
    "map",
    "policies",
    "run",
    "run_sync",
    "trajectory",
]
