"""What applies an allocation to the world: the protocols of managers, leases and sandboxes in their hands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from arl_tangram.model.sandbox import Sandbox
from arl_tangram.model.topology import Dimension


@dataclass(frozen=True, slots=True)
class ExecUsage:
    """What the commands of one action took.

    Attributes:
        overhead_s: seconds around the commands: time inside `exec` less the commands' own time.
        cpu_s: CPU seconds of the commands.
    """

    overhead_s: float
    cpu_s: float


class ManagedSandbox(Sandbox, Protocol):
    """A sandbox as its manager and the execution see it."""

    async def aclose(self) -> None:
        """Kill everything in it and remove it; bounded, idempotent, never raises for a sandbox that is lost."""
        ...


class CpuLease(Protocol):
    """Cores in use by one running action, applied when created."""

    @property
    def core_ids(self) -> tuple[int, ...]:
        """The host's numbers of the cores."""
        ...

    @property
    def usage(self) -> ExecUsage:
        """What the commands took so far."""
        ...

    def needs_cleanup(self) -> bool:
        """Whether something that the action started may still run, so that `clean` must be awaited."""
        ...

    async def clean(self) -> None:
        """Kill everything that the action started in its sandbox; bounded. Nothing else may run meanwhile.

        Raises:
            SandboxLostError: something survived, and the sandbox was destroyed.
        """
        ...

    def release(self) -> None:
        """Give the cores back; idempotent, synchronous, cannot fail."""
        ...


class CpuManager(Protocol):
    """Owns the cores (and the memory) of a pool, and its sandboxes."""

    def dimensions(self) -> tuple[Dimension, ...]:
        """What it offers: `cpu` in milli-cores, `memory` in bytes. Known before `start`."""
        ...

    def check_image(self, image: str | None) -> None:
        """Raise `ConfigurationError` if trajectories cannot have this image."""
        ...

    async def start(self) -> None:
        """Probe what is permitted here and sweep what killed runs left behind."""
        ...

    async def aclose(self) -> None:
        """Close all sandboxes and remove everything that was created; bounded."""
        ...

    async def create_sandbox(self, *, image: str | None, memory_bytes: int) -> ManagedSandbox:
        """Create a sandbox; nothing is left behind if that fails or is cancelled.

        Raises:
            SandboxStartError: it could not be created.
        """
        ...

    def lease(self, milli_cores: int, sandbox: ManagedSandbox | None) -> CpuLease:
        """Apply a grant: pin the sandbox (or, for a host body, just pick) cores; synchronous.

        The caller never asks for more than is free: the scheduler has counted it already.
        """
        ...

    def describe(self) -> str:
        """Say in one line what enforces the grants here."""
        ...


class CpuPool(Protocol):
    """A declared pool of cores, such as `LocalPool(...)`: what a user hands to the runtime."""

    def manager(self) -> CpuManager:
        """Return a new manager for one runtime."""
        ...
