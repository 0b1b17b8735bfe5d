"""Every error that the library raises, in one tree, split by whose fault it is.

::

    TangramError
    ├── DefinitionError (TypeError)          an action is declared wrongly
    ├── ConfigurationError (ValueError)      a pool, a quota or the runtime is declared wrongly
    │   └── ConfigurationMismatchError       a shared runtime of this name has another configuration
    ├── InfeasibleError (ValueError)         the cost can never be met by the pools that there are
    ├── UsageError (RuntimeError)            a correct thing, used in the wrong place
    │   ├── ArgumentsError (TypeError)       the call does not fit the action's signature
    │   ├── NoRuntimeError                   no runtime, or more than one to choose from
    │   │   └── NoSharedRuntimeError         no shared runtime of this name
    │   ├── VersionMismatchError             the two sides of a shared runtime are of different versions
    │   ├── RuntimeClosedError               the runtime is not open (any more)
    │   ├── WrongLoopError                   called from elsewhere while the runtime's event loop does not run
    │   ├── ForkedRuntimeError               called in a forked child of the runtime's process
    │   ├── NoActionError                    current_… outside a running action
    │   ├── NoSandboxError                   this action has no sandbox
    │   ├── NoServiceError                   this action has no service
    │   ├── EvictedServiceError              a service is called that no running action holds
    │   ├── NoTrajectoryError                a trajectory that is not open (any more)
    │   └── NestedActionError                an action calls one that can never run while it waits for it
    ├── SandboxPathError (ValueError)        a path that leaves the sandbox
    ├── RunTimeout (TimeoutError)            the body ran longer than its `timeout`
    ├── OutOfMemoryError (MemoryError)       the body's worker process, or its container, ran out of memory
    ├── BodyExitedError (RuntimeError)       the body exited or crashed, and its worker process with it
    ├── BodyCancelledError (RuntimeError)    the body raised CancelledError though nobody cancelled it
    ├── RemoteError (RuntimeError)           what a body raised elsewhere and must not, or cannot, be raised here
    ├── ResultError (TypeError)              what a body returned cannot leave its worker process
    ├── MissingExtraError (ImportError)      an optional dependency is not installed
    ├── TraceFormatError (ValueError)        a file that is no trace, or one of a newer library
    └── InfrastructureError                  not the body's fault: mask the sample, do not train on it
        ├── QueueTimeout (TimeoutError)      waited longer than `queue_timeout`
        ├── SandboxStartError (OSError)      a sandbox could not be created
        ├── SandboxLostError (OSError)       a sandbox died while it was in use
        │   └── NodeLostError                its node, or the agent there, died
        ├── OwnerLostError (OSError)         the owner of a shared runtime died, and what it granted is lost
        ├── LeaseLostError (OSError)         this process was cut off from a shared runtime for too long
        ├── AllocationError (OSError)        what was granted to a sandbox is not what is in effect there
        ├── RestoreError (OSError)           a service could not be restored on any of its devices
        ├── ServiceLostError (OSError)       a service died, or gave no proper answer, while it was in use
        ├── WorkerStartError (OSError)       a worker process could not be started
        ├── WorkerDiedError (OSError)        a worker process was killed while a body ran in it
        ├── BackendDownError (OSError)       what is behind a quota with a breaker has failed again and again
        ├── GroupCancelledError (RuntimeError) `cancel_group` ended it
        └── ShutdownError (RuntimeError)     the runtime closed while the action waited or ran

What a body raises itself passes unchanged and is not part of this tree.
"""

from __future__ import annotations


class TangramError(Exception):
    """Base of all errors of the library."""


class DefinitionError(TangramError, TypeError):
    """An action is declared in a way that cannot work."""


class ConfigurationError(TangramError, ValueError):
    """A pool, a quota or the runtime is configured in a way that cannot work."""


class ConfigurationMismatchError(ConfigurationError):
    """A shared runtime of this name is open with another configuration; the message says what differs."""


class InfeasibleError(TangramError, ValueError):
    """A cost vector can never be granted; the message says what was asked and what there is."""


class UsageError(TangramError, RuntimeError):
    """Something correct is used at the wrong time or in the wrong place."""


class ArgumentsError(UsageError, TypeError):
    """The arguments of a call do not fit the signature of the action."""


class NoRuntimeError(UsageError):
    """There is no open runtime, or several and none of them is the current one."""


class NoSharedRuntimeError(NoRuntimeError):
    """There is no shared runtime of this name to connect to."""


class VersionMismatchError(UsageError):
    """The two sides of a shared runtime have different versions of the library; the message names both."""


class RuntimeClosedError(UsageError):
    """The runtime has not been opened or has been closed."""


class WrongLoopError(UsageError):
    """A call from elsewhere finds that the event loop of the runtime does not run now."""


class ForkedRuntimeError(UsageError):
    """The runtime was inherited through `fork`; only the process that opened it may use it."""


class NoActionError(UsageError):
    """`current_allocation()` and its kin were called outside a running action."""


class NoSandboxError(UsageError):
    """The running action has no sandbox."""


class NoServiceError(UsageError):
    """The running action has no service."""


class EvictedServiceError(UsageError):
    """A service, or a module of one, is called while no running action holds it; its weights are elsewhere."""


class NoTrajectoryError(UsageError):
    """The trajectory is not open (any more)."""


class NestedActionError(UsageError):
    """An action calls another one that can never run while it waits for it; the message names the chain of callers."""


class SandboxPathError(TangramError, ValueError):
    """A path points outside the sandbox."""


class RunTimeout(TangramError, TimeoutError):
    """The body ran longer than its `timeout`; the body's own failure, so never masked."""


class OutOfMemoryError(TangramError, MemoryError):
    """The body's worker process, or the container of its sandbox, ended for lack of memory.

    The body's own failure, so never masked. A command that the kernel kills alone, in a container that lives on, is no
    error: it has exit code 137.
    """


class BodyExitedError(TangramError, RuntimeError):
    """The body ended its worker process, by exiting or by a fault; the body's own failure, so never masked.

    Attributes:
        exit_code: what it exited with, or None if a signal ended it.
        signal: the number of the signal that it caused, such as that of a segmentation fault, or None.
    """

    def __init__(self, message: str, *, exit_code: int | None = None, signal: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.signal = signal


class BodyCancelledError(TangramError, RuntimeError):
    """The body raised `CancelledError` though nobody cancelled the action, or the action that called it was ended."""


class RemoteError(TangramError, RuntimeError):
    """What a body raised on a thread or in a worker and must not be raised in the trainer, or cannot be pickled.

    Attributes:
        error: type name of what was raised.
        text: its text.
        traceback: the same with its traceback there, as text.
    """

    def __init__(self, error: str, text: str, traceback: str) -> None:
        super().__init__(error, text, traceback)
        self.error = error
        self.text = text
        self.traceback = traceback

    def __str__(self) -> str:
        return f"{self.error}: {self.text}"


class ResultError(TangramError, TypeError):
    """What a body returned in a worker process cannot be pickled, or not be made again."""


class MissingExtraError(TangramError, ImportError):
    """An optional dependency is missing; the message names the extra that brings it."""


class TraceFormatError(TangramError, ValueError):
    """A file cannot be read as a trace; the message names the file and the line."""


class InfrastructureError(TangramError):
    """The infrastructure failed, not the body: a trainer should mask the sample."""


class QueueTimeout(InfrastructureError, TimeoutError):
    """The action waited longer than its `queue_timeout`; it never started."""


class SandboxStartError(InfrastructureError, OSError):
    """A sandbox could not be created."""


class SandboxLostError(InfrastructureError, OSError):
    """A sandbox died while it was in use."""


class NodeLostError(SandboxLostError):
    """The node of a sandbox or of a service, or the agent there, died or was cut off."""


class OwnerLostError(InfrastructureError, OSError):
    """The owner of a shared runtime died, and what it had granted, or what waited there, is lost."""


class LeaseLostError(InfrastructureError, OSError):
    """This process was cut off from its shared runtime for longer than its lease; what it held went to others."""


class AllocationError(InfrastructureError, OSError):
    """What was granted to a sandbox is not what is in effect there; the message says both. Its commands do not run."""


class RestoreError(InfrastructureError, OSError):
    """A service could not be made resident, or GPUs not be emptied for a `gpu=` body, after a few tries; no body began.

    Leaving `Tangram.lend` raises it, too: a service does not leave the devices.
    """


class ServiceLostError(InfrastructureError, OSError):
    """A service died or gave no proper answer while an action used it."""


class WorkerStartError(InfrastructureError, OSError):
    """A worker process could not be started, or ended before the body began."""


class WorkerDiedError(InfrastructureError, OSError):
    """A worker process ended while a body ran in it, and not by what the body did, as far as can be told.

    Attributes:
        exit_code: what it exited with, or None if a signal ended it.
        signal: the number of the signal that ended it, or None.
    """

    def __init__(self, message: str, *, exit_code: int | None = None, signal: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.signal = signal


class BackendDownError(InfrastructureError, OSError):
    """What is behind a quota has failed again and again, and its breaker lets nothing through; it never started."""


class GroupCancelledError(InfrastructureError, RuntimeError):
    """`cancel_group` ended the action, or the trajectory that it was called in."""


class ShutdownError(InfrastructureError, RuntimeError):
    """The runtime was closed while the action waited or ran."""
