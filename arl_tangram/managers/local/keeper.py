"""The process that stands beside the commands of one sandbox: it starts, reaps and kills them.

It is run as a program of its own (`python -I -S keeper.py`), one per sandbox, and is driven over the
SOCK_SEQPACKET socket that is its descriptor 0. It is the reaper of everything that the commands start (process 1
of its own namespace, or a child subreaper), so that the end of a command, and whether anything is left of it,
are told in band. When the socket ends because the trainer is gone, it kills everything and exits.

Requests are fields that a zero byte separates; the answers are words in ASCII:

    spawn ID CWD ARGC ARGV... ENV...   + 3 descriptors    done ID CODE START END CPU LEFT | failed ID ERRNO SUBJECT
    large                              + 1 + 3 descriptors: the request is in the first one, a memfd
    kill TOKEN ID|*                                       killed TOKEN CLEAN LEFT
    pin CPU,CPU...                                        (none)

Only what is built into the interpreter is imported: `socket` and `signal` alone would double the start-up time.
"""

from __future__ import annotations

# ruff: noqa: SIM105 - contextlib is not built in either
import _socket
import os
import select
import sys
import time

TYPE_CHECKING = False  # the name is enough for type checkers
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable

    Strike = Callable[[], bool]
else:
    import _signal as signal

KILL_LIMIT_S = 1.0  # longer than any orderly death takes; the trainer has stronger means after that
REQUEST_BYTES = 1 << 16
MOST_EXPENDABLE = b"1000"
_MSG_CMSG_CLOEXEC = 0x40000000  # linux/socket.h
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36
# Python ignores these two, and what is ignored stays ignored across exec.
_DEFAULTED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)


def children(pid: int) -> list[int]:
    """Return the processes whose parent is `pid`; none if it is gone."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as listing:
                found.extend(int(word) for word in listing.read(1 << 20).split())
    except (FileNotFoundError, ProcessLookupError):
        if _children_are_listed():
            return found
        return [child for child in map(int, filter(str.isdigit, os.listdir("/proc"))) if parent(child) == pid]
    return found


def _children_are_listed() -> bool:
    me = os.getpid()
    return os.path.exists(f"/proc/{me}/task/{me}/children")


def parent(pid: int) -> int:
    """Return the parent of a process, 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as stat:
            return int(stat.read(1 << 12).rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def descendants(pid: int) -> list[int]:
    """Return everything below a process, parents before their children."""
    found = children(pid)
    for child in found:  # grows while it is walked
        found.extend(children(child))
    return found


def send_signal(pid: int, number: int) -> None:
    """Send a signal to a process (a group, if negative) that may be gone or not ours."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def kill_tree(pid: int) -> None:
    """Kill everything below a process, not itself: one round, which a process being born may escape.

    A group is killed as a whole, atomically, so that an ordinary fork bomb dies in the first round.
    """
    found = children(pid)
    groups = {os.getpgrp()}
    for child in found:  # grows while it is walked
        found.extend(children(child))
        try:
            group = os.getpgid(child)
        except ProcessLookupError:
            continue
        if group not in groups:
            groups.add(group)
            send_signal(-group, signal.SIGKILL)
        send_signal(child, signal.SIGKILL)


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


class Keeper:
    """Starts commands, reaps everything, answers the trainer."""

    def __init__(self, trainer: _socket.socket, wakeup: int) -> None:
        self._trainer = trainer
        self._wakeup = wakeup
        self._running: dict[int, tuple[str, float]] = {}  # root process -> (command, start)
        self._is_init = os.getpid() == 1

    def serve(self) -> None:
        """Answer requests until the socket ends; then kill everything."""
        parent_at_start = os.getppid()
        waiting = select.poll()
        waiting.register(self._trainer.fileno(), select.POLLIN)
        waiting.register(self._wakeup, select.POLLIN)
        self._answer("ready")
        try:
            while self._is_init or os.getppid() == parent_at_start:
                for fd, _ in waiting.poll():
                    if fd == self._wakeup:
                        self._drain()
                        self._reap()
                    elif not self._serve_one():
                        return
        finally:
            while not self._kill_all():
                pass  # nobody is left to tell; a process that cannot die now must not outlive us

    def _serve_one(self) -> bool:
        try:
            data, ancillary, _, _ = self._trainer.recvmsg(REQUEST_BYTES, 1 << 10, _MSG_CMSG_CLOEXEC)
        except ConnectionError:
            return False
        if not data:
            return False
        fds: list[int] = []
        for _, _, packed in ancillary:
            fds.extend(int.from_bytes(packed[i : i + 4], sys.byteorder) for i in range(0, len(packed), 4))
        try:
            if data == b"large":
                data = _content(fds[0])
            verb, *fields = data.split(b"\0")
            if verb == b"spawn":
                self._spawn(fields, fds[-3:])
            elif verb == b"kill":
                self._kill(fields)
            elif verb == b"pin":
                self._pin({int(cpu) for cpu in fields[0].split(b",")})
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def _answer(self, *words: object) -> None:
        try:
            self._trainer.send(" ".join(map(str, words)).encode())
        except OSError:
            pass  # the trainer has hung up; the end of the socket is what tells it

    # commands

    def _spawn(self, fields: list[bytes], fds: list[int]) -> None:
        command, cwd, argc = fields[0].decode(), fields[1], int(fields[2])
        argv = fields[3 : 3 + argc]
        if len(fds) != 3:  # this process has no room for more descriptors
            self._answer("failed", command, 24, "program")  # EMFILE
            return
        env = dict(entry.split(b"=", 1) for entry in fields[3 + argc :])
        try:
            os.chdir(cwd)
        except OSError as error:
            self._answer("failed", command, error.errno, "cwd")
            return
        start = time.monotonic()
        try:
            pid = _start(argv, env, fds)
        except OSError as error:
            self._answer("failed", command, error.errno, "program")
        else:
            self._running[pid] = (command, start)
            _mark_expendable(pid)
        finally:
            os.chdir("/")

    def _reap(self) -> bool:
        """Collect what has ended, tell the ends of commands, and return whether any process is left."""
        ended: list[tuple[str, int, float, float, float]] = []
        left = True
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                left = False
                break
            if pid == 0:
                break
            if pid in self._running:
                command, start = self._running.pop(pid)
                code = os.waitstatus_to_exitcode(status)
                cpu_s = usage.ru_utime + usage.ru_stime
                ended.append((command, code if code >= 0 else 128 - code, start, time.monotonic(), cpu_s))
        for command, code, start, end, cpu_s in ended:
            self._answer("done", command, code, repr(start), repr(end), repr(cpu_s), int(left))
        return left

    # killing

    def _kill(self, fields: list[bytes]) -> None:
        token, command = fields[0].decode(), fields[1].decode()
        roots = [pid for pid, (name, _) in self._running.items() if name == command]
        if command == "*" or len(self._running) == len(roots):
            clean = self._kill_all()
        else:
            clean = self._kill_command(roots[0], command) if roots else True
        self._answer("killed", token, int(clean), int(self._reap()))

    def _kill_all(self) -> bool:
        def strike() -> bool:
            if self._is_init:
                send_signal(-1, signal.SIGKILL)  # spares process 1; atomic, so no fork escapes it
            else:
                kill_tree(os.getpid())
            return not self._reap()

        return self._repeat(strike)

    def _kill_command(self, root: int, command: str) -> bool:
        """Kill one command beside others: stop all that belongs to it first, so that none gets a new parent."""
        victims: set[int] = set()
        while new := set(self._belonging(root, command)) - victims:
            for pid in new:
                send_signal(pid, signal.SIGSTOP)
            victims |= new

        def strike() -> bool:
            for pid in victims:
                send_signal(pid, signal.SIGKILL)
            self._reap()
            return not any(os.path.exists(f"/proc/{pid}") for pid in victims)

        return self._repeat(strike)

    def _belonging(self, root: int, command: str) -> list[int]:
        """Return the command's tree, and the orphans of it: known by their session or their environment."""
        mark = b"ARL_TANGRAM_EXEC=" + command.encode()
        orphans = [pid for pid in children(os.getpid()) if pid not in self._running]
        tops = [root, *(pid for pid in orphans if _session(pid) == root or mark in _environment(pid))]
        return [pid for top in tops for pid in (top, *descendants(top))]

    def _repeat(self, strike: Strike) -> bool:
        """Strike until it says that nothing is left, or for `KILL_LIMIT_S`."""
        deadline = time.monotonic() + KILL_LIMIT_S
        death = select.poll()
        death.register(self._wakeup, select.POLLIN)
        while not strike():
            if time.monotonic() > deadline:
                return False
            if death.poll(20):
                self._drain()
        return True

    def _drain(self) -> None:
        try:
            os.read(self._wakeup, 4096)
        except BlockingIOError:
            pass  # a kill in the same turn has emptied it

    # affinity

    def _pin(self, cpus: set[int]) -> None:
        for pid in (os.getpid(), *descendants(os.getpid())):
            try:
                for thread in os.listdir(f"/proc/{pid}/task"):
                    os.sched_setaffinity(int(thread), cpus)
            except OSError:
                pass  # it has just ended, or is another user's


def _content(memfd: int) -> bytes:
    size = os.fstat(memfd).st_size
    return os.pread(memfd, size, 0)


def _environment(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            return environ.read().split(b"\0")
    except OSError:
        return []


def _start(argv: list[bytes], env: dict[bytes, bytes], fds: list[int]) -> int:
    """Start a program, found on the PATH of its own environment, as the leader of a new session."""
    program = argv[0]
    places = [b""] if b"/" in program else env.get(b"PATH", b"/usr/local/bin:/usr/bin:/bin").split(b":")
    moves = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(fds)]
    refused: OSError | None = None
    for place in places:
        try:
            return os.posix_spawn(
                os.path.join(place, program),
                argv,
                env,
                file_actions=moves,
                setsid=True,
                setsigmask=(),
                setsigdef=_DEFAULTED,
            )
        except (FileNotFoundError, NotADirectoryError) as error:
            refused = refused or error
        except PermissionError as error:
            refused = error
    raise refused or FileNotFoundError(2, "no such program")


def _mark_expendable(pid: int) -> None:
    """Let the kernel choose a command, and what it starts, when memory is short: not its keeper, nor the trainer.

    Not inherited from the keeper: it would be the first to go while it starts a command.
    """
    try:
        with open(f"/proc/{pid}/oom_score_adj", "wb", buffering=0) as weight:
            weight.write(MOST_EXPENDABLE)
    except OSError:
        pass  # it has ended, or runs as another user


def _adopt_orphans() -> None:
    """Become the reaper of all descendants, and be told when the trainer dies."""
    import ctypes  # noqa: PLC0415 - slow, and not needed by process 1

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot become a subreaper")
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _wake_up(number: int, frame: object) -> None:
    """Do nothing: the descriptor for wake-ups tells the main loop."""


def main() -> None:
    """Serve the trainer at the other end of descriptor 0."""
    for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
        if fd > 2:
            try:
                os.close(fd)  # what a library of the trainer has left open for its children is not for commands
            except OSError:
                pass  # the listing's own
    if os.getpid() != 1:
        _adopt_orphans()
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _wake_up)
    Keeper(_socket.socket(fileno=0), reading).serve()


if __name__ == "__main__":
    main()
