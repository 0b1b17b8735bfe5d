"""Commands of a sandbox when its container, its daemon or what kills fails; a shell of this machine stands in."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import time
from collections.abc import AsyncIterator, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from arl_tangram.errors import OutOfMemoryError, SandboxLostError, UsageError
from arl_tangram.managers.docker import own_scripts, script
from arl_tangram.managers.docker import session as session_module
from arl_tangram.managers.docker.absence import Absence
from arl_tangram.managers.docker.answers import ContainerState, DaemonError, ExecState
from arl_tangram.managers.docker.command import Command
from arl_tangram.managers.docker.commands import Commands
from arl_tangram.managers.docker.session import SessionError
from arl_tangram.managers.ended import Ended, NotStartedError
from unit.managers.docker.local_shells import LocalDaemon, LocalStream


class FaultyDaemon(LocalDaemon):
    """A daemon that says what it is told to say."""

    state: ContainerState | DaemonError = ContainerState(True, 1, 0, False, "")
    running = False
    removed = 0
    remove_hangs = False

    shells_refused = ""
    away: DaemonError | None = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.asked_in_vain = asyncio.Event()

    async def open_exec(self, container_id: str, argv: list[str], *, env: object, workdir: str) -> LocalStream:
        """Start a shell, unless that is refused."""
        if self.away is not None:
            self.asked_in_vain.set()
            raise self.away
        if self.shells_refused:
            raise SessionError(self.shells_refused)
        return await super().open_exec(container_id, argv, env=env, workdir=workdir)

    async def inspect(self, container_id: str) -> ContainerState:
        """Say how the container is."""
        if isinstance(self.state, DaemonError):
            raise self.state
        return self.state

    async def exec_state(self, exec_id: str) -> ExecState:
        """Say how the shell is."""
        return ExecState(self.running, None if self.running else 137, 1)

    async def remove(self) -> None:
        """Count."""
        self.removed += 1
        if self.remove_hangs:
            await asyncio.sleep(5)


class FakeGroup:
    """The process group of a shell in the place of a cgroup."""

    def __init__(self, daemon: LocalDaemon, number: int) -> None:
        self._daemon = daemon
        self._number = number
        self.has_survivors = False
        self.kills = 0

    def enter(self, pid: int) -> None:
        """Do nothing: it is in."""

    def processes(self) -> list[int]:
        """Return all of the process group."""
        if self._number > len(self._daemon.streams):
            return []  # it has not begun
        with _unwatched():
            return _of_group(self._daemon.streams[self._number - 1].pid)

    def kill(self, spared: Collection[int] = ()) -> bool:
        """Kill them, and return when they are gone."""
        self.kills += 1
        if self.has_survivors:
            return False
        deadline_s = time.monotonic() + 5.0
        while doomed := set(self.processes()) - set(spared):  # until they are gone, as a cgroup does
            if time.monotonic() > deadline_s:
                return False
            for pid in doomed:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        return True

    def remove(self) -> bool:
        """Do nothing."""
        return True


def _of_group(number: int) -> list[int]:
    found: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{name}/stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[2]) == number and fields[0] != "Z":
                found.append(int(name))
    return found


@contextlib.contextmanager
def _unwatched() -> Iterator[None]:
    """Let a fake block the loop, which the tests do not let the package do."""
    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)


class FakeLimits:
    """Gives each session such a group."""

    is_direct = True

    def __init__(self, daemon: LocalDaemon) -> None:
        self._daemon = daemon
        self.groups: list[FakeGroup] = []
        self.rushing = 0
        self.rushes = 0

    @contextlib.asynccontextmanager
    async def rush(self) -> AsyncIterator[None]:
        """Count."""
        self.rushing += 1
        self.rushes += 1
        yield
        self.rushing -= 1

    def session_group(self, number: int) -> FakeGroup:
        """Return it."""
        self.groups.append(FakeGroup(self._daemon, number))
        return self.groups[-1]

    def cpu_s(self) -> float | None:
        """Tell nothing."""
        return None


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[FaultyDaemon]:
    made = FaultyDaemon("dash", tmp_path, {"PATH": "/usr/bin:/bin"})
    yield made
    await made.aclose()


@pytest.fixture
def limits(daemon: FaultyDaemon) -> FakeLimits:
    return FakeLimits(daemon)


@pytest.fixture
async def absence() -> Absence:
    return Absence("the daemon")


@pytest.fixture
async def commands(
    daemon: FaultyDaemon, limits: FakeLimits, absence: Absence, tmp_path: Path
) -> AsyncIterator[Commands]:
    made = Commands(
        daemon,
        "c",
        pid=1,
        sandbox_id="box",
        remove=daemon.remove,
        limits=limits,  # type: ignore[arg-type]
        env={},
        workdir=str(tmp_path),
        absence=absence,
    )
    await made.open()
    yield made
    await made.aclose()


def command(*argv: str, timeout_s: float | None = None, stdin: bytes = b"", spill: bool = False) -> Command:
    return Command(argv, "/", {}, stdin, timeout_s, 1 << 20, spill)


class Ran:
    """Hears of the times of commands."""

    def __init__(self) -> None:
        self.times: list[tuple[float, float, float]] = []

    def __call__(self, start_s: float, end_s: float, cpu_s: float) -> None:
        self.times.append((start_s, end_s, cpu_s))


async def run(commands: Commands, *argv: str, timeout_s: float | None = None, stdin: bytes = b"") -> Ended:
    return await commands.run(command(*argv, timeout_s=timeout_s, stdin=stdin), Ran(), lambda: None)


async def until_running(commands: Commands, daemon: LocalDaemon, limits: FakeLimits) -> None:
    async with asyncio.timeout(10):
        while len(limits.groups[0].processes()) < 2:  # noqa: ASYNC110 - nothing announces a process
            await asyncio.sleep(0.005)


async def test_a_command_and_its_times(commands: Commands) -> None:
    ran = Ran()
    ended = await commands.run(command("sh", "-c", "echo out; exit 3"), ran, lambda: None)
    assert (ended.exit_code, ended.stdout.content(), ended.timed_out, ended.spilled) == (3, b"out\n", False, None)
    assert ran.times == [(ended.start_s, ended.end_s, ended.cpu_s)]
    assert not commands.may_be_alive


@pytest.mark.parametrize("oom", [False, True])
async def test_a_container_that_dies_is_lost_with_the_reason(
    commands: Commands, daemon: FaultyDaemon, limits: FakeLimits, oom: bool
) -> None:
    running = asyncio.ensure_future(run(commands, "sleep", "100"))
    await until_running(commands, daemon, limits)
    daemon.state = ContainerState(False, 0, 137, oom, "")
    daemon.streams[0].close()
    error, memory = (OutOfMemoryError, ", out of memory") if oom else (SandboxLostError, "")
    with pytest.raises(error, match=f"exit code 137{memory}"):
        await running
    with pytest.raises(error, match="exit code 137"):
        await run(commands, "true")


async def test_a_deadline_stands_still_while_the_sandbox_is_suspended(
    commands: Commands, daemon: FaultyDaemon, limits: FakeLimits
) -> None:
    running = asyncio.ensure_future(run(commands, "sleep", "100", timeout_s=0.2))
    await until_running(commands, daemon, limits)
    commands.clock.stop()
    await asyncio.sleep(0.4)
    assert not running.done()
    assert limits.rushes == 0
    commands.clock.go_on()
    ended = await running
    assert (ended.timed_out, ended.exit_code) == (True, 137)
    assert (limits.rushes, limits.rushing) == (1, 0), "what is killed has time to end"


async def test_what_waits_for_a_suspended_sandbox_hears_of_its_end(commands: Commands) -> None:
    commands.clock.stop()
    waiting = asyncio.ensure_future(commands.clock.until_running())
    await asyncio.sleep(0)
    assert not waiting.done()
    commands.lose("its container was removed")
    await waiting
    with pytest.raises(SandboxLostError, match="its container was removed"):
        commands.check()


async def test_a_script_of_ours_is_not_late_while_the_sandbox_is_suspended(
    commands: Commands, daemon: FaultyDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_scripts, "SHELL_LIMIT_S", 0.2)
    commands.clock.stop()
    assert await commands.shell("sleep 0.4; echo slow") == (0, b"slow\n", b"")


async def test_a_command_that_begins_before_it_is_known_that_the_daemon_is_away_waits_for_it(
    commands: Commands, daemon: FaultyDaemon, absence: Absence
) -> None:
    commands.interrupt("its daemon is gone")  # its shells are
    daemon.away = DaemonError("gone", 0, "nothing listens there")
    running = asyncio.ensure_future(run(commands, "echo", "on"))
    await daemon.asked_in_vain.wait()
    absence.begin()
    daemon.away = None
    await asyncio.sleep(0.1)
    assert not running.done()
    absence.end()
    assert (await running).stdout.content() == b"on\n"


async def test_a_daemon_that_does_not_come_back_loses_the_sandbox(
    commands: Commands, daemon: FaultyDaemon, absence: Absence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arl_tangram.managers.docker.absence.LIMIT_S", 0.1)
    commands.interrupt("its daemon is gone")
    daemon.away = DaemonError("gone", 0, "nothing listens there")
    absence.begin()
    with pytest.raises(SandboxLostError, match=r"the daemon has not answered for 0\.1 s"):
        await run(commands, "true")


async def test_a_container_that_is_gone_is_lost(commands: Commands, daemon: FaultyDaemon, limits: FakeLimits) -> None:
    running = asyncio.ensure_future(run(commands, "sleep", "100"))
    await until_running(commands, daemon, limits)
    daemon.state = DaemonError("refused", 404, "No such container: c")
    daemon.streams[0].close()
    with pytest.raises(SandboxLostError, match="is gone"):
        await running


async def test_a_command_without_an_end_is_lost_but_not_its_sandbox(
    commands: Commands, daemon: FaultyDaemon, limits: FakeLimits
) -> None:
    running = asyncio.ensure_future(run(commands, "sleep", "100"))
    await until_running(commands, daemon, limits)
    daemon.state = DaemonError("gone", 0, "nothing listens there")
    daemon.streams[0].close()
    with pytest.raises(SandboxLostError, match="no known end: nothing listens there"):
        await running
    assert commands.may_be_alive
    await commands.kill()
    assert not commands.may_be_alive
    assert (await run(commands, "echo", "next")).stdout.content() == b"next\n"


async def test_interrupted_commands_fail_at_once_and_the_sandbox_goes_on(
    commands: Commands, daemon: FaultyDaemon, limits: FakeLimits
) -> None:
    running = asyncio.ensure_future(run(commands, "sleep", "100"))
    await until_running(commands, daemon, limits)
    commands.interrupt("the daemon is being restarted")
    with pytest.raises(SandboxLostError, match="being restarted"):
        await running
    assert commands.may_be_alive
    await commands.kill()
    assert (await run(commands, "echo", "next")).stdout.content() == b"next\n"


async def test_a_command_that_kills_its_shell_has_failed(commands: Commands, daemon: FaultyDaemon) -> None:
    ended = await run(commands, "sh", "-c", "echo out; kill -9 $PPID")
    assert (ended.exit_code, ended.stdout.content()) == (137, b"out\n")
    assert (await run(commands, "echo", "next")).stdout.content() == b"next\n"


@pytest.mark.parametrize("hangs", [False, True])
async def test_what_survives_destroys_the_sandbox(
    commands: Commands, daemon: FaultyDaemon, limits: FakeLimits, hangs: bool
) -> None:
    limits.groups[0].has_survivors = True
    daemon.remove_hangs = hangs
    async with asyncio.timeout(4.5):  # a removal that takes long goes on behind it
        with pytest.raises(SandboxLostError, match="could not be killed, so it was destroyed"):
            await run(commands, "sleep", "100", timeout_s=0.1)
    assert daemon.removed == 1
    with pytest.raises(SandboxLostError, match="could not be killed"):
        await run(commands, "true")
    limits.groups[0].has_survivors = False


async def test_a_shell_that_does_not_answer_is_killed_too(
    commands: Commands, daemon: FaultyDaemon, limits: FakeLimits
) -> None:
    ended = await run(commands, "sh", "-c", "kill -STOP $PPID; sleep 100", timeout_s=0.1)
    assert (ended.exit_code, ended.timed_out) == (137, True)
    assert (await run(commands, "echo", "next")).stdout.content() == b"next\n"


async def test_nothing_starts_once_the_action_has_ended(commands: Commands, daemon: FaultyDaemon) -> None:
    def closed() -> None:
        raise UsageError("no action")

    for asked in (command("true"), command("cat", stdin=bytes(1 << 20))):
        with pytest.raises(UsageError):
            await commands.run(asked, Ran(), closed)
    assert all(b"arl_exec" not in stream.sent.rpartition(b"arl_say R")[2] for stream in daemon.streams)
    assert (await run(commands, "echo", "next")).stdout.content() == b"next\n"


async def test_words_beyond_what_the_kernel_takes_are_refused_before_anything_is_sent(
    commands: Commands, daemon: FaultyDaemon
) -> None:
    before = [bytes(stream.sent) for stream in daemon.streams]
    for words in (["echo", "x" * (128 << 10)], ["echo", "é" * (64 << 10)]):
        with pytest.raises(NotStartedError) as raised:
            await run(commands, *words)
        assert raised.value.errno == errno.E2BIG
    assert [bytes(stream.sent) for stream in daemon.streams] == before
    assert (await run(commands, "printf", "%s", "x" * ((128 << 10) - 1))).stdout.total == (128 << 10) - 1


async def test_what_is_left_behind_is_killed_when_asked(commands: Commands, limits: FakeLimits) -> None:
    assert (await run(commands, "sh", "-c", "sleep 100 & echo out")).stdout.content() == b"out\n"
    assert commands.may_be_alive
    assert len(limits.groups[0].processes()) == 2
    assert (await run(commands, "echo", "next")).stdout.content() == b"next\n"  # in another session
    assert len(limits.groups) == 2
    await commands.kill()
    assert not commands.may_be_alive
    assert limits.groups[0].processes() == []


async def test_cancelling_while_input_is_written_ends_the_session(commands: Commands, limits: FakeLimits) -> None:
    for step in range(6):
        running = asyncio.ensure_future(run(commands, "cat", stdin=b"touch /nowhere\n" * 1_000_000))
        await asyncio.sleep(0.004 * step)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    ended = await run(commands, "cat", stdin=b"x" * 100_000)
    assert ended.stdout.content() == b"x" * 100_000


async def test_our_own_scripts(commands: Commands) -> None:
    assert await commands.shell("cat; echo oh >&2; exit 7", b"in") == (7, b"in", b"oh\n")
    assert await commands.shell("wc -c", bytes(1 << 20)) == (0, b"1048576\n", b"")
    assert not commands.may_be_alive


async def test_closing_fails_what_runs(commands: Commands, daemon: FaultyDaemon, limits: FakeLimits) -> None:
    running = [asyncio.ensure_future(run(commands, "sleep", "100")) for _ in range(3)]
    await until_running(commands, daemon, limits)
    await commands.aclose()
    for each in running:
        with pytest.raises(SandboxLostError, match="closed"):
            await each
    with pytest.raises(SandboxLostError, match="closed"):
        await commands.shell("true")


def guard_file(stream: LocalStream) -> Path:
    return Path(stream.opening.decode().splitlines()[1])


def leave(path: Path, hundredths: int = 0) -> None:
    """Do as a guard that fires, so long after now."""
    with _unwatched():
        uptime_s = float(Path("/proc/uptime").read_text().split()[0]) + hundredths / 100
        path.write_text(f"{uptime_s:.2f}\n")


@pytest.mark.parametrize("fired", ["its own", "another one", "one before it began", "nobody's"])
async def test_the_kill_of_a_guard_is_not_laid_to_the_command(
    commands: Commands, daemon: FaultyDaemon, limits: FakeLimits, fired: str
) -> None:
    other = asyncio.ensure_future(run(commands, "sleep", "100"))
    await until_running(commands, daemon, limits)
    if fired == "one before it began":
        leave(guard_file(daemon.streams[0]), -10)
    running = asyncio.ensure_future(run(commands, "sh", "-c", "echo out; sleep 100"))
    async with asyncio.timeout(10):
        while len(limits.groups) < 2 or len(limits.groups[1].processes()) < 3:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.005)
    left = {
        "its own": guard_file(daemon.streams[1]),
        "another one": guard_file(daemon.streams[0]),
        "nobody's": Path(f"{script.GUARD_FILES}1"),
    }.get(fired)
    if left is not None:
        leave(left)
    daemon.streams[1].close()
    if fired in ("its own", "another one"):
        with pytest.raises(SandboxLostError, match="broke off"):
            await running
    else:
        assert (await running).exit_code == 137
    with _unwatched():
        Path(f"{script.GUARD_FILES}1").unlink(missing_ok=True)  # noqa: ASYNC240 - it is brief
        assert not any(guard_file(stream).exists() for stream in daemon.streams), "they are removed"
    daemon.streams[0].close()
    if fired == "another one":  # whose session ends a little later
        with pytest.raises(SandboxLostError, match="broke off"):
            await other
    else:
        await asyncio.wait([other])
        other.exception()
    assert (await run(commands, "echo", "next")).stdout.content() == b"next\n"


async def test_a_container_that_was_started_again_is_another_one(
    commands: Commands, daemon: FaultyDaemon, limits: FakeLimits
) -> None:
    running = asyncio.ensure_future(run(commands, "sleep", "100"))
    await until_running(commands, daemon, limits)
    daemon.state = ContainerState(True, 2, 0, False, "")
    daemon.streams[0].close()
    with pytest.raises(SandboxLostError, match="started again"):
        await running


async def test_a_container_that_is_being_killed_does_not_pass_as_alive(
    commands: Commands, daemon: FaultyDaemon, limits: FakeLimits
) -> None:
    """It takes no new process, and that it has ended is told a little later."""
    running = asyncio.ensure_future(run(commands, "sleep", "100"))
    await until_running(commands, daemon, limits)
    daemon.shells_refused = "OCI runtime exec failed: open /proc/1/ns/ipc: no such file or directory"
    daemon.streams[0].close()
    await asyncio.sleep(0.3)
    daemon.state = ContainerState(False, 0, 137, False, "")
    with pytest.raises(SandboxLostError, match="exit code 137"):
        await running


async def test_idle_shells_that_a_command_has_stopped_are_replaced(
    commands: Commands, daemon: FaultyDaemon, limits: FakeLimits
) -> None:
    await asyncio.gather(*(run(commands, "sleep", "0.1") for _ in range(2)))
    os.killpg(daemon.streams[0].pid, signal.SIGSTOP)
    os.killpg(daemon.streams[1].pid, signal.SIGSTOP)
    third = asyncio.ensure_future(run(commands, "sleep", "100", timeout_s=0.2))
    async with asyncio.timeout(10):
        assert (await third).timed_out
        assert (await run(commands, "echo", "next")).stdout.content() == b"next\n"
        assert (await commands.shell("echo ours"))[1] == b"ours\n"


async def test_a_script_of_ours_that_is_late_is_run_again_elsewhere(
    commands: Commands, daemon: FaultyDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_scripts, "SHELL_LIMIT_S", 1.0)
    os.killpg(daemon.streams[0].pid, signal.SIGSTOP)
    async with asyncio.timeout(10):
        assert (await commands.shell("echo ours"))[1] == b"ours\n"
        with pytest.raises(SandboxLostError, match="does not come to its end"):
            await commands.shell("sleep 100")
        assert (await commands.shell("echo ours"))[1] == b"ours\n"


async def test_input_for_a_shell_that_does_not_take_it_goes_elsewhere(
    commands: Commands, daemon: FaultyDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await run(commands, "cat", stdin=bytes(1 << 14))).exit_code == 0  # there is a folder for it
    monkeypatch.setattr(session_module, "FEED_LIMIT_S", 0.5)
    os.killpg(daemon.streams[-1].pid, signal.SIGSTOP)
    async with asyncio.timeout(10):
        assert (await commands.shell("wc -c", bytes(1 << 18)))[1].strip() == b"262144"
