"""What is tried, and what is promised of it: each fault in bodies of every kind. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

TIMEOUT_S = 0.5
"""Of a body that never ends by itself."""

KILL_GRACE_S = 0.5
DEAF_S = 2.0
"""How long a coroutine ignores that it is cancelled."""

ANSWER_S = 3.0
"""Within so many seconds a caller has its answer, and what it held is free: on a busy machine, too."""

LARGE_S = 30.0
"""The same for a result of 1 GiB."""

ENDED_S = 8.0
"""Within so many seconds a trainer that is to end has ended, and all that it had started."""

BLOCKED_S = 2.0
"""So long a blocked trainer is watched before it is killed."""

NAMED_S = 15.0
"""Within so many seconds a body that blocks the loop is named in the log; about 3 where the machine is not busy."""


class Kind(StrEnum):
    """Where the fault is."""

    LOOP = "loop"  # an `async def` body
    THREAD = "thread"  # a plain function on a thread
    PROCESS = "process"  # a plain function in a worker process
    COMMAND = "command"  # what an `async def` body executes in a sandbox
    TRAJECTORY = "trajectory"  # an `async def` body that has a sandbox, with a command running there


class Promise(StrEnum):
    """What the runtime can do about it."""

    HOLDS = "holds"  # the caller is answered, everything is given back, nothing is left
    LINGERS = "lingers"  # the caller is answered; the thread cannot be ended, so its units stay in use, visibly
    BLOCKS = "blocks"  # nothing else runs in the trainer, so nobody is answered until it is killed
    ENDS = "ends"  # the trainer ends, and everything that it had started


WORDS = {
    "regex": "a regular-expression bomb",
    "spin": "while True: pass",
    "sleep": "time.sleep(600)",
    "pause": "time.sleep(0.4)",
    "await": "asyncio.sleep(600)",
    "gil": "C code that keeps the interpreter lock",
    "deaf": "ignores that it is cancelled",
    "exit": "os._exit(3)",
    "segfault": "a segmentation fault",
    "killed": "SIGKILL from elsewhere",
    "large": "a result of 1 GiB",
    "SystemExit": "raise SystemExit(3)",
    "KeyboardInterrupt": "raise KeyboardInterrupt",
    "StopIteration": "raise StopIteration",
    "unpicklable": "an error that cannot be pickled",
    "recursion": "recursion without end",
    "memory": "1 GiB where memory_gib=0.25",
    "survivor": "leaves a process (setsid, orphaned)",
    "left-behind": "leaves such a process, and os._exit(3)",
    "fork-bomb": "a fork bomb of 128 processes",
    "descriptors": "closes descriptors 0 to 20",
    "surroundings": "changes folder and environment",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One fault in a body of one kind.

    Attributes:
        kind: where it is.
        fault: its name.
        outcome: what the caller gets: the name of an error, `returned`, or the exit code of the command.
        promise: what the runtime can do.
        infrastructure: whether that error is one to mask the sample for.
        timeout_s: of the body.
        answer_s: within which the caller is answered.
        leaves: what stays, in the words of `left`.
        is_named: whether a body that blocks the loop is named in the log.
        is_closed: whether the runtime closes though the trainer ends.
    """

    kind: Kind
    fault: str
    outcome: str
    promise: Promise = Promise.HOLDS
    infrastructure: bool = False
    timeout_s: float = TIMEOUT_S
    answer_s: float = ANSWER_S
    leaves: tuple[str, ...] = ()
    is_named: bool = False
    is_closed: bool = True

    @property
    def name(self) -> str:
        """Kind and fault, as `--only` takes them."""
        return f"{self.kind}/{self.fault}"

    @property
    def is_alone(self) -> bool:
        """Whether its trainer is of no use for other cases afterwards."""
        return self.is_ruin or self.promise is Promise.LINGERS or bool(self.leaves)

    @property
    def is_ruin(self) -> bool:
        """Whether its trainer ends, or has to be ended."""
        return self.promise in {Promise.BLOCKS, Promise.ENDS}

    @property
    def strays(self) -> int:
        """How many processes stay."""
        return sum(what.startswith("process") for what in self.leaves)


def _cases() -> Iterable[Case]:
    loop, thread, process, command = Kind.LOOP, Kind.THREAD, Kind.PROCESS, Kind.COMMAND
    for fault in ("regex", "gil"):
        yield Case(loop, fault, "no answer", Promise.BLOCKS, is_closed=False)
        yield Case(thread, fault, "no answer", Promise.BLOCKS, is_closed=False)
        yield Case(process, fault, "RunTimeout")
        yield Case(command, fault, "RunTimeout")
    for fault in ("spin", "sleep"):
        yield Case(loop, fault, "no answer", Promise.BLOCKS, is_closed=False, is_named=True)
        yield Case(thread, fault, "RunTimeout", Promise.LINGERS, leaves=("a thread in a body", "task on_a_thread"))
        yield Case(process, fault, "RunTimeout")
        yield Case(command, fault, "RunTimeout")
    yield Case(loop, "pause", "returned", is_named=True, timeout_s=10)
    yield Case(loop, "await", "RunTimeout")
    for kind in (loop, process, command, Kind.TRAJECTORY):
        yield Case(kind, "deaf", "RunTimeout")
    yield from _ends()
    yield from _raises()
    yield from _takes()


def _ends() -> Iterable[Case]:
    """Faults that end a process."""
    own = {"exit": ("exit code 3", "exit code 3"), "segfault": ("SIGSEGV", "exit code 139")}
    for fault, (trainer, command) in own.items():
        for kind in (Kind.LOOP, Kind.THREAD):
            yield Case(kind, fault, f"the trainer ended: {trainer}", Promise.ENDS, is_closed=False)
        yield Case(Kind.PROCESS, fault, "BodyExitedError", timeout_s=10)
        yield Case(Kind.COMMAND, fault, command, timeout_s=10)
    yield Case(Kind.TRAJECTORY, "exit", "the trainer ended: exit code 3", Promise.ENDS, is_closed=False)
    yield Case(Kind.TRAJECTORY, "spin", "no answer", Promise.BLOCKS, is_closed=False, is_named=True)
    yield Case(Kind.PROCESS, "killed", "WorkerDiedError", infrastructure=True, timeout_s=10)
    yield Case(Kind.COMMAND, "killed", "exit code 137", timeout_s=10)


def _raises() -> Iterable[Case]:
    """Errors that mean something else to Python, or that cannot leave a process."""
    for fault, told, code in (("SystemExit", "exit code 3", 3), ("KeyboardInterrupt", "SIGINT", 130)):
        for kind in (Kind.LOOP, Kind.TRAJECTORY):
            yield Case(kind, fault, f"the trainer ended: {told}", Promise.ENDS)
        for kind in (Kind.THREAD, Kind.PROCESS):
            yield Case(kind, fault, f"RemoteError ({fault})", timeout_s=10)
        yield Case(Kind.COMMAND, fault, f"exit code {code}", timeout_s=10)
    outcomes = {
        "StopIteration": ("RuntimeError", "RuntimeError", "RemoteError (StopIteration)"),
        "unpicklable": ("UnpicklableError", "UnpicklableError", "RemoteError (UnpicklableError)"),
        "recursion": ("RecursionError", "RecursionError", "RecursionError"),
    }
    for fault, (loop, thread, process) in outcomes.items():
        yield Case(Kind.LOOP, fault, loop, timeout_s=10)
        yield Case(Kind.THREAD, fault, thread, timeout_s=10)
        yield Case(Kind.PROCESS, fault, process, timeout_s=10)
        yield Case(Kind.COMMAND, fault, "exit code 1", timeout_s=10)


def _takes() -> Iterable[Case]:
    """Faults that take or change what others need."""
    for kind in (Kind.LOOP, Kind.THREAD, Kind.PROCESS, Kind.COMMAND):
        outcome = "exit code 0" if kind is Kind.COMMAND else "returned"
        yield Case(kind, "large", outcome, timeout_s=2 * LARGE_S, answer_s=LARGE_S)
        leaves = ("process sleep",) if kind in {Kind.LOOP, Kind.THREAD} else ()
        yield Case(kind, "survivor", outcome, timeout_s=10, leaves=leaves)
    yield Case(Kind.PROCESS, "left-behind", "BodyExitedError", timeout_s=10)
    yield Case(Kind.COMMAND, "left-behind", "exit code 3", timeout_s=10)
    yield Case(Kind.PROCESS, "memory", "MemoryError", timeout_s=10)
    yield Case(Kind.COMMAND, "memory", "exit code 137", timeout_s=20, answer_s=10)
    for kind in (Kind.PROCESS, Kind.COMMAND):
        yield Case(kind, "fork-bomb", "RunTimeout", answer_s=6)
    # It has hung up; whoever kills a worker brings that about as well.
    yield Case(Kind.PROCESS, "descriptors", "WorkerDiedError", infrastructure=True, timeout_s=10)
    yield Case(Kind.COMMAND, "descriptors", "exit code 0", timeout_s=10)
    yield Case(Kind.PROCESS, "surroundings", "returned", timeout_s=10)
    yield Case(Kind.COMMAND, "surroundings", "exit code 0", timeout_s=10)


def _ordered() -> tuple[Case, ...]:
    kinds, faults = list(Kind), list(WORDS)
    return tuple(sorted(_cases(), key=lambda case: (kinds.index(case.kind), faults.index(case.fault))))


CASES: tuple[Case, ...] = _ordered()
BY_NAME = {case.name: case for case in CASES}


def chosen(only: Sequence[str]) -> tuple[Case, ...]:
    """Return the cases that were asked for: by kind, by fault, or by both with a slash between; all without words.

    Raises:
        ValueError: a word means none of them; the message says what there is.
    """
    names = {str(kind) for kind in Kind} | set(WORDS) | set(BY_NAME)
    if unknown := [word for word in only if word not in names]:
        raise ValueError(f"there is no {', '.join(map(repr, unknown))}; there are {', '.join(sorted(names))}")
    return tuple(case for case in CASES if not only or {case.kind, case.fault, case.name} & set(only))


def batches(cases: Sequence[Case]) -> list[tuple[Case, ...]]:
    """Return the cases of each trainer: those of a kind together, and by itself whatever ruins its trainer."""
    together: dict[Kind, list[Case]] = {}
    for case in cases:
        if not case.is_alone:
            together.setdefault(case.kind, []).append(case)
    return [*map(tuple, together.values()), *((case,) for case in cases if case.is_alone)]
