"""What every sandbox promises, whatever stands behind it: one suite for all implementations.

A test file subclasses `SandboxContract` and provides the fixture `manager`, a started `CpuManager` of at least two
cores whose processes can be seen in this machine's /proc. Commands use nothing but a POSIX shell and coreutils or
busybox.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from arl_tangram.errors import SandboxLostError, SandboxPathError, UsageError
from arl_tangram.managers.manager import CpuLease, CpuManager, ManagedSandbox
from arl_tangram.model.sandbox import ExecResult, Sandbox
from virtual_time import until

_marks = itertools.count()


def mark() -> str:
    """Return a number of seconds that no other process sleeps for: it tells in /proc whose a process is."""
    return f"{3000 + next(_marks)}.{os.getpid()}{random.randrange(10**6):06}"


def processes(text: str) -> list[int]:
    """Return the live processes whose command line holds a text."""
    found: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{name}/cmdline").read_bytes()
            state = Path(f"/proc/{name}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            if text.encode() in command and state not in ("Z", "X"):
                found.append(int(name))
    return found


async def until_there_is(text: str) -> None:
    """Wait until a process has this text in its command line."""
    async with asyncio.timeout(60):
        while not processes(text):  # noqa: ASYNC110 - nothing announces the start of somebody else's process
            await asyncio.sleep(0.005)


async def longest_turn_s(work: asyncio.Future[object]) -> float:
    """Return the longest time that the loop computed between two looks at it, whatever else the machine does."""
    longest_s, before_s = 0.0, time.thread_time()
    while not work.done():
        await asyncio.sleep(0.005)
        now_s = time.thread_time()
        longest_s, before_s = max(longest_s, now_s - before_s), now_s
    return longest_s


async def visible_cores(box: Sandbox) -> int:
    """Return the cores that the scheduler gives to a command; `nproc` would believe the exported variable."""
    return int((await box.exec(["env", "-u", "OMP_NUM_THREADS", "nproc"])).stdout)


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


class SandboxContract:
    """The suite."""

    @pytest.fixture
    async def sandbox(self, manager: CpuManager) -> AsyncIterator[ManagedSandbox]:
        created = await manager.create_sandbox(image=None, memory_bytes=0)
        yield created
        await created.aclose()

    @pytest.fixture
    def lease(self, manager: CpuManager, sandbox: ManagedSandbox) -> Iterator[CpuLease]:
        held = manager.lease(1000, sandbox)
        yield held
        held.release()

    @pytest.fixture
    def box(self, sandbox: ManagedSandbox, lease: CpuLease) -> Sandbox:
        """A sandbox in which an action with one core is running."""
        return sandbox

    # commands

    async def test_is_a_sandbox(self, box: Sandbox) -> None:
        assert isinstance(box, Sandbox)
        assert box.id

    @pytest.mark.parametrize(
        ("script", "code"),
        [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -TERM $$", 143), ("kill -KILL $$", 137)],
    )
    async def test_exit_code(self, box: Sandbox, script: str, code: int) -> None:
        done = await box.exec(shell(script))
        assert (done.exit_code, done.timed_out, done.truncated) == (code, False, False)

    async def test_streams_are_separate_and_exact(self, box: Sandbox) -> None:
        done = await box.exec(shell(r"printf 'a\000\377\n'; printf 'b\001' >&2"))
        assert (done.stdout, done.stderr) == (b"a\0\xff\n", b"b\1")

    async def test_stdin_arrives_whole_and_ends(self, box: Sandbox) -> None:
        data = bytes(range(256)) * 3000
        done = await box.exec(["cat"], stdin=data)
        assert done.stdout == data

    async def test_stdin_is_empty_by_default(self, box: Sandbox) -> None:
        assert (await box.exec(["cat"])).stdout == b""

    async def test_stdin_that_nobody_reads_is_no_error(self, box: Sandbox) -> None:
        assert (await box.exec(["true"], stdin=b"x" * (4 << 20))).exit_code == 0

    async def test_no_shell_touches_the_arguments(self, box: Sandbox) -> None:
        arguments = ["$HOME", "a b", "*", "", "'\"\\", "é\n"]
        done = await box.exec(["printf", "<%s>", *arguments])
        assert done.stdout.decode() == "".join(f"<{argument}>" for argument in arguments)

    async def test_arguments_beyond_every_buffer(self, box: Sandbox) -> None:
        done = await box.exec([*shell('for a; do printf "%s" "$a"; done | wc -c'), "sh", *["x" * 100_000] * 8])
        assert int(done.stdout) == 800_000

    async def test_working_folder_persists_and_cwd_is_below_it(self, box: Sandbox) -> None:
        await box.exec(shell("mkdir -p a/b && echo here > a/b/file"))
        assert (await box.exec(["cat", "file"], cwd="a/b")).stdout == b"here\n"
        assert (await box.exec(["cat", "a/b/file"])).stdout == b"here\n"

    async def test_env_goes_on_top(self, box: Sandbox) -> None:
        done = await box.exec(shell('echo "$ADDED $OMP_NUM_THREADS"; test -n "$PATH" -a -d "$HOME" -a -w "$HOME"'))
        assert (done.exit_code, done.stdout) == (0, b" 1\n")
        done = await box.exec(shell('echo "$ADDED $OMP_NUM_THREADS"'), env={"ADDED": "yes", "OMP_NUM_THREADS": "7"})
        assert done.stdout == b"yes 7\n"

    async def test_a_cancelled_copy_does_not_go_on(self, box: Sandbox, tmp_path: Path) -> None:
        source = tmp_path / "source"
        source.mkdir()
        for number in range(2_000):
            (source / str(number)).write_bytes(b"x")
        copying = asyncio.create_task(box.put_dir(source, "copy"))
        await asyncio.sleep(0.02)
        copying.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await copying
        counted = (await box.exec(["sh", "-c", "ls copy 2>/dev/null | wc -l"])).stdout
        await asyncio.sleep(0.1)
        assert (await box.exec(["sh", "-c", "ls copy 2>/dev/null | wc -l"])).stdout == counted

    async def test_a_cancelled_command_with_much_input_keeps_no_descriptor(self, box: Sandbox) -> None:
        await box.exec(["true"])  # connections that it takes are kept
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            running = asyncio.create_task(box.exec(["cat"], stdin=bytes(50_000_000)))
            await asyncio.sleep(0.001)
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
        # The other end of what was hung up may be in this process, and hear of it a moment later.
        async with asyncio.timeout(5):
            await until(lambda: len(os.listdir("/proc/self/fd")) <= before)

    async def test_a_pipe_in_the_way_of_a_file_is_an_error(self, box: Sandbox) -> None:
        await box.exec(["mkfifo", "answer"])
        async with asyncio.timeout(10):
            with pytest.raises(OSError):  # noqa: PT011 - which one is the implementation's
                await box.write_file("answer", b"42")
            with pytest.raises(OSError):  # noqa: PT011
                await box.read_file("answer")

    async def test_a_file_that_is_too_large_is_not_read(self, box: Sandbox) -> None:
        await box.exec(["truncate", "-s", "100", "sparse"])
        assert len(await box.read_file("sparse", max_bytes=100)) == 100
        with pytest.raises(OSError, match="max_bytes"):
            await box.read_file("sparse", max_bytes=99)

    async def test_a_command_does_not_start_after_its_action(
        self, manager: CpuManager, sandbox: ManagedSandbox
    ) -> None:
        """Preparing much input or a spill file takes a while, in which the action may end."""
        seconds = mark()
        lease = manager.lease(1000, sandbox)
        late = [
            asyncio.create_task(sandbox.exec(["sleep", seconds], spill=True)),
            asyncio.create_task(sandbox.exec(["sleep", seconds], stdin=bytes(1 << 20))),
        ]
        await asyncio.sleep(0)
        if lease.needs_cleanup():
            await lease.clean()
        lease.release()
        results = await asyncio.gather(*late, return_exceptions=True)
        assert all(isinstance(result, UsageError) for result in results), results
        assert processes(seconds) == []

    @pytest.mark.parametrize(
        ("argv", "options", "error", "named"),
        [
            (["echo", 1], {}, TypeError, "argv"),
            ({"echo": 1}, {}, TypeError, "argv"),
            (None, {}, TypeError, "argv"),
            (["echo"], {"env": {"A": 1}}, TypeError, "env"),
            (["echo"], {"env": {1: "x"}}, TypeError, "env"),
            (["echo"], {"env": ["A=1"]}, TypeError, "env"),
            (["echo"], {"stdin": None}, TypeError, "stdin"),
            (["echo"], {"cwd": None}, TypeError, "cwd"),
            (["echo"], {"cwd": 3}, TypeError, "cwd"),
            (["echo"], {"cwd": b"."}, TypeError, "cwd"),
            (["echo"], {"timeout": "1"}, TypeError, "timeout"),
            (["echo"], {"timeout": True}, ValueError, "timeout"),
            (["echo"], {"max_output_bytes": 1e3}, ValueError, "max_output_bytes"),
            (["echo"], {"max_output_bytes": True}, ValueError, "max_output_bytes"),
        ],
        ids=repr,
    )
    async def test_arguments_of_the_wrong_type_are_refused(
        self, box: Sandbox, argv: object, options: dict[str, object], error: type[Exception], named: str
    ) -> None:
        with pytest.raises(error, match=rf"^{named} (must be|takes) .*(not|involved)"):
            await box.exec(argv, **options)  # type: ignore[arg-type]

    @pytest.mark.parametrize("path", [None, 3, b"x"], ids=repr)
    async def test_paths_of_the_wrong_type_are_refused(self, box: Sandbox, tmp_path: Path, path: Any) -> None:
        for attempt in (
            box.read_file(path),
            box.write_file(path, b""),
            box.put_dir(tmp_path, path),
            box.get_dir(path, tmp_path / "copy"),
        ):
            with pytest.raises(TypeError, match=r"^path must be a string, not"):
                await attempt
        for attempt, named in (
            (box.put_dir(path, "x"), "source"),
            (box.get_dir(".", path), "target"),
            (box.write_file("x", "text"), "write_file"),  # type: ignore[arg-type]
        ):
            with pytest.raises(TypeError, match=rf"^{named} .*, not"):
                await attempt
        await box.write_file("x", b"")
        for wrong in (None, -1, 1e3, True):
            with pytest.raises(ValueError, match=r"^max_bytes must be"):
                await box.read_file("x", max_bytes=wrong)  # type: ignore[arg-type]

    async def test_copies_of_links_that_lead_out_go_back_in(self, box: Sandbox, tmp_path: Path) -> None:
        made = await box.exec(
            shell("mkdir -p t/sub; cd t; ln -s ../sibling l; ln -s ../../x sub/m; ln -s sub in; chmod 555 sub")
        )
        assert made.exit_code == 0
        await box.get_dir("t", tmp_path / "copy")
        for _ in range(2):
            await box.put_dir(tmp_path / "copy", "back")
            told = await box.exec(shell("cd back && readlink l && readlink sub/m && readlink in && ls -ld sub"))
            assert told.stdout.startswith(b"../sibling\n../../x\nsub\ndr-xr-xr-x"), told

    async def test_tmpdir_is_writable(self, box: Sandbox) -> None:
        done = await box.exec(shell('echo x > "${TMPDIR:-/tmp}/file" && cat "${TMPDIR:-/tmp}/file"'))
        assert done.stdout == b"x\n"

    async def test_missing_program(self, box: Sandbox) -> None:
        with pytest.raises(FileNotFoundError, match=r"inside the sandbox.*no-such-program") as raised:
            await box.exec(["no-such-program"])
        assert raised.value.filename == "no-such-program"

    async def test_program_that_cannot_be_executed(self, box: Sandbox) -> None:
        await box.write_file("data", b"")
        with pytest.raises(PermissionError, match="data"):
            await box.exec(["./data"])

    async def test_missing_cwd(self, box: Sandbox) -> None:
        with pytest.raises(FileNotFoundError, match="the working folder 'nowhere' does not exist") as raised:
            await box.exec(["true"], cwd="nowhere")
        assert raised.value.filename == "nowhere"

    @pytest.mark.parametrize(
        "wrong",
        [
            {"argv": []},
            {"argv": ["a\0b"]},
            {"argv": ["true"], "env": {"A": "\0"}},
            {"argv": ["true"], "env": {"A=B": ""}},
            {"argv": ["true"], "timeout": 0},
            {"argv": ["true"], "timeout": float("nan")},
            {"argv": ["true"], "max_output_bytes": 0},
        ],
    )
    async def test_wrong_arguments(self, box: Sandbox, wrong: dict[str, object]) -> None:
        with pytest.raises(ValueError, match=r".+"):
            await box.exec(**wrong)  # type: ignore[arg-type]

    async def test_times_are_the_commands_own(self, box: Sandbox) -> None:
        done = await box.exec(shell("i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done; sleep 0.2"))
        assert 0.2 <= done.duration_s < 20
        assert 0.005 < done.cpu_s < done.duration_s

    async def test_concurrent_commands(self, box: Sandbox) -> None:
        done = await asyncio.gather(*(box.exec(shell(f"echo {n}; exit {n}")) for n in range(12)))
        assert [(each.exit_code, each.stdout) for each in done] == [(n, f"{n}\n".encode()) for n in range(12)]

    # output

    async def test_output_is_kept_in_bounds_with_head_and_tail(self, box: Sandbox) -> None:
        done = await box.exec(shell("seq 1 100000; seq 1 5 >&2"), max_output_bytes=1000)
        assert done.truncated
        assert len(done.stdout) == 1000
        assert done.stdout.startswith(b"1\n2\n3\n")
        assert done.stdout.endswith(b"99999\n100000\n")
        assert done.stderr == b"1\n2\n3\n4\n5\n"

    @pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001])
    async def test_output_at_its_bound(self, box: Sandbox, size: int) -> None:
        done = await box.exec(["head", "-c", str(size), "/dev/zero"], max_output_bytes=1000)
        assert (len(done.stdout), done.truncated) == (min(size, 1000), size > 1000)

    async def test_case_32_floods_of_output_take_bounded_memory_and_leave_the_loop_alone(self, box: Sandbox) -> None:
        before = reset_peak_kib()
        flood = asyncio.ensure_future(box.exec(shell("yes | head -c 500000000")))
        longest_s = await longest_turn_s(flood)
        done = await flood
        assert done.truncated
        assert len(done.stdout) == 1 << 20
        assert peak_kib() - before < 50_000
        assert longest_s < 0.05  # a flood handled in one go would take seconds

    async def test_case_34_spilled_output_is_whole(self, box: Sandbox) -> None:
        done = await box.exec(shell("seq 1 100000; echo oh >&2"), max_output_bytes=1000, spill=True)
        assert done.truncated
        assert done.stdout_path is not None
        assert done.stderr_path is not None
        whole = b"".join(b"%d\n" % n for n in range(1, 100001))
        assert await box.read_file(done.stdout_path) == whole
        assert await box.read_file(done.stderr_path) == b"oh\n"
        assert (done.stdout, done.stderr) == (whole[:500] + whole[-500:], b"oh\n")

    async def test_short_spilled_output_is_in_the_result_too(self, box: Sandbox) -> None:
        first, second = [await box.exec(["echo", word], spill=True) for word in ("one", "two")]
        assert (first.stdout, first.truncated, second.stdout) == (b"one\n", False, b"two\n")
        assert first.stdout_path != second.stdout_path

    async def test_a_grandchild_that_holds_stdout_delays_nothing(self, box: Sandbox, lease: CpuLease) -> None:
        mine = mark()
        async with asyncio.timeout(20):
            done = await box.exec(shell(f"sleep {mine} & echo done"))
        assert done.stdout == b"done\n"
        assert processes(mine)  # it lives on until the action ends
        assert lease.needs_cleanup()
        await lease.clean()
        assert not processes(mine)
        assert not lease.needs_cleanup()

    # killing

    async def test_timeout_keeps_the_output_and_the_sandbox(self, box: Sandbox) -> None:
        mine = mark()
        done = await box.exec(shell(f"echo a; echo b >&2; sleep {mine}"), timeout=0.3)
        assert (done.exit_code, done.timed_out, done.stdout, done.stderr) == (137, True, b"a\n", b"b\n")
        assert not processes(mine)
        assert (await box.exec(["echo", "b"])).stdout == b"b\n"

    async def test_timeout_kills_what_left_the_session(self, box: Sandbox) -> None:
        mine = mark()
        script = f"setsid sleep {mine} & env -i setsid sleep {mine} & (sleep 2; touch late-{mine}) & wait"
        done = await box.exec(shell(script), timeout=0.3)
        assert done.timed_out
        assert not processes(mine)  # nor the shell that would touch the file
        assert (await box.exec(["test", "-e", f"late-{mine}"])).exit_code == 1

    async def test_timeout_kills_a_daemon(self, box: Sandbox) -> None:
        mine = mark()
        script = f"(setsid sh -c '(env -i setsid sleep {mine} &) &' &); sleep {mine}"
        assert (await box.exec(shell(script), timeout=0.3)).timed_out
        assert not processes(mine)

    async def test_timeout_of_one_command_spares_another(self, box: Sandbox) -> None:
        mine, others = mark(), mark()
        await box.exec(["mkfifo", "gate"])
        other = asyncio.ensure_future(box.exec(shell(f"sleep {others} & read line < gate; kill $!; echo $line")))
        await until_there_is(f"sleep\0{others}")
        done = await box.exec(shell(f"setsid sleep {mine} & (setsid sleep {mine} &); sleep {mine}"), timeout=0.3)
        assert done.timed_out
        assert not processes(mine)
        assert processes(f"sleep\0{others}")
        await box.exec(shell("echo alive > gate"))
        assert (await other).stdout == b"alive\n"

    async def test_timeout_of_a_command_that_ignores_signals(self, box: Sandbox) -> None:
        mine = mark()
        done = await box.exec(shell(f"trap '' TERM INT HUP; while :; do sleep {mine}; done"), timeout=0.3)
        assert done.timed_out
        assert not processes(mine)

    async def test_cancelling_kills_first(self, box: Sandbox) -> None:
        mine = mark()
        running = asyncio.ensure_future(box.exec(shell(f"env -i setsid sleep {mine} & sleep {mine}")))
        await until_there_is(mine)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not processes(mine)
        assert (await box.exec(["echo", "b"])).stdout == b"b\n"

    async def test_cancelling_again_and_again_changes_nothing(self, box: Sandbox) -> None:
        mine = mark()
        running = asyncio.ensure_future(box.exec(shell(f"setsid sleep {mine} & sleep {mine}")))
        await until_there_is(mine)
        while not running.done():
            running.cancel()
            await asyncio.sleep(0)
        assert running.cancelled()
        assert not processes(mine)

    async def test_large_files_written_at_once_all_arrive(self, box: Sandbox) -> None:
        for turn in range(5):
            contents = {f"{number}": bytes([turn, number]) * 100_000 for number in range(4)}
            await asyncio.gather(*(box.write_file(path, data) for path, data in contents.items()))
            for path, data in contents.items():
                assert await box.read_file(path) == data

    async def test_a_timeout_spares_what_starts_beside_it(self, box: Sandbox) -> None:
        for limit_s in (0.001, 0.02, 0.05):
            mine = mark()
            other = asyncio.ensure_future(box.exec(shell("sleep 0.5; echo fine")))
            assert (await box.exec(["sleep", mine], timeout=limit_s)).timed_out
            done = await other
            assert (done.exit_code, done.stdout) == (0, b"fine\n")
            assert not processes(mine)

    async def test_commands_that_are_cancelled_at_once_leave_the_sandbox_usable(self, box: Sandbox) -> None:
        for count in (2, 3):
            mine = mark()
            running = [asyncio.ensure_future(box.exec(["sleep", mine])) for _ in range(count)]
            await until_there_is(mine)
            for each in running:
                each.cancel()
            await asyncio.wait(running)
            assert all(each.cancelled() for each in running)
            assert not processes(mine)
            assert (await box.exec(["echo", "b"])).stdout == b"b\n"

    async def test_cancelling_at_any_point_leaves_nothing(self, box: Sandbox, lease: CpuLease) -> None:
        mine = mark()
        for step in range(40):
            running = asyncio.ensure_future(box.exec(shell(f"setsid sleep {mine} & sleep {mine}"), stdin=b"x" * 10))
            for _ in range(step):  # the first steps are turns of the loop, the later ones also take time
                await asyncio.sleep(0 if step < 20 else 0.0005)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            if lease.needs_cleanup():
                await lease.clean()
            assert not processes(mine), step
        assert (await box.exec(["echo", "b"])).stdout == b"b\n"

    async def test_cleaning_is_finished_when_cancelled(self, box: Sandbox, lease: CpuLease) -> None:
        mine = mark()
        await box.exec(shell(f"setsid sleep {mine} & :"))
        cleaning = asyncio.ensure_future(lease.clean())
        await asyncio.sleep(0)
        cleaning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cleaning
        assert not processes(mine)

    # grants

    async def test_the_grant_is_what_programs_see(self, manager: CpuManager, sandbox: ManagedSandbox) -> None:
        for cores in (1, 2, 1):
            lease = manager.lease(cores * 1000, sandbox)
            await lease.applied()
            assert len(lease.core_ids) == cores
            assert await visible_cores(sandbox) == cores
            lease.release()

    async def test_the_grant_is_in_the_environment(self, manager: CpuManager, sandbox: ManagedSandbox) -> None:
        names = (
            "OMP_NUM_THREADS",
            "OPENBLAS_NUM_THREADS",
            "MKL_NUM_THREADS",
            "PYTHON_CPU_COUNT",
            "PYTEST_XDIST_AUTO_NUM_WORKERS",
        )
        for milli_cores, count in ((2000, 2), (500, 1), (1500, 2)):
            lease = manager.lease(milli_cores, sandbox)
            done = await sandbox.exec(["sh", "-c", "echo " + " ".join(f"${name}" for name in names)])
            assert done.stdout.split() == [b"%d" % count] * len(names)
            lease.release()

    async def test_a_fraction_shows_its_ceiling(self, manager: CpuManager, sandbox: ManagedSandbox) -> None:
        lease = manager.lease(300, sandbox)
        assert await visible_cores(sandbox) == 1
        lease.release()

    async def test_whole_cores_are_exclusive(self, manager: CpuManager, sandbox: ManagedSandbox) -> None:
        first, second = manager.lease(1000, sandbox), manager.lease(1000, None)
        await first.applied()
        await second.applied()
        assert first.core_ids
        assert second.core_ids
        assert not set(first.core_ids) & set(second.core_ids)
        first.release()
        first.release()
        second.release()

    async def test_no_command_without_an_action(self, manager: CpuManager, sandbox: ManagedSandbox) -> None:
        with pytest.raises(UsageError, match="no action"):
            await sandbox.exec(["true"])
        manager.lease(1000, sandbox).release()
        with pytest.raises(UsageError, match="no action"):
            await sandbox.exec(["true"])

    async def test_usage_adds_up(self, box: Sandbox, lease: CpuLease) -> None:
        assert (lease.usage.overhead_s, lease.usage.cpu_s) == (0, 0)
        started = time.monotonic()
        done: list[ExecResult] = [await box.exec(["sleep", "0.1"]) for _ in range(3)]
        done += await asyncio.gather(*(box.exec(["sleep", "0.1"]) for _ in range(3)))
        wall_s = time.monotonic() - started
        usage = lease.usage
        assert 0 < usage.overhead_s < wall_s - 0.4  # at least four times 0.1 s are the commands' own
        assert usage.cpu_s == pytest.approx(sum(each.cpu_s for each in done))

    async def test_time_of_a_cancelled_command_is_not_overhead(self, box: Sandbox, lease: CpuLease) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await box.exec(["sleep", mark()])
        assert lease.usage.overhead_s < 0.4

    # files

    async def test_files_arrive_exactly(self, box: Sandbox) -> None:
        data = bytes(range(256)) * 1000
        await box.write_file("deep/er/file", data)
        assert await box.read_file("deep/er/file") == data
        assert (await box.exec(["cat", "deep/er/file"])).stdout == data
        await box.write_file("deep/er/file", b"")
        assert await box.read_file("deep/er/file") == b""

    async def test_missing_file(self, box: Sandbox) -> None:
        with pytest.raises(FileNotFoundError):
            await box.read_file("nowhere")

    @pytest.mark.parametrize("path", ["..", "../..", "a/../../x", "../../../../../../etc/passwd"])
    async def test_paths_cannot_leave(self, box: Sandbox, tmp_path: Path, path: str) -> None:
        for attempt in (
            box.exec(["true"], cwd=path),
            box.read_file(path),
            box.write_file(path, b"x"),
            box.put_dir(tmp_path, path),
            box.get_dir(path, tmp_path / "copy"),
        ):
            with pytest.raises(SandboxPathError):
                await attempt

    async def test_links_cannot_lead_out(self, box: Sandbox, tmp_path: Path) -> None:
        (tmp_path / "secret").write_text("secret")
        await box.exec(["ln", "-s", str(tmp_path), "out"])
        await box.exec(["ln", "-s", str(tmp_path / "secret"), "file"])
        for attempt in (
            box.exec(["true"], cwd="out"),
            box.read_file("out/secret"),
            box.read_file("file"),
            box.write_file("file", b"x"),
            box.write_file("out/new", b"x"),
            box.put_dir(tmp_path, "out"),
            box.get_dir("out", tmp_path / "copy"),
        ):
            with pytest.raises(SandboxPathError):
                await attempt
        assert os.listdir(tmp_path) == ["secret"]
        assert (tmp_path / "secret").read_text() == "secret"

    async def test_folders_go_in_and_out(self, box: Sandbox, tmp_path: Path) -> None:
        source, back = tmp_path / "source", tmp_path / "back"
        (source / "sub" / "empty").mkdir(parents=True)
        (source / "sub" / "bytes").write_bytes(b"\0\xff")
        (source / "run").write_text("#!/bin/sh\necho ran\n")
        (source / "run").chmod(0o755)
        (source / "link").symlink_to("sub/bytes")
        (source / "dangling").symlink_to("/nowhere/at/all")
        await box.put_dir(source, "copy")
        assert (await box.exec(["./copy/run"])).stdout == b"ran\n"
        await box.exec(shell("echo more > copy/sub/more; mkfifo copy/pipe"))
        await box.get_dir("copy", back)
        assert (back / "sub" / "bytes").read_bytes() == b"\0\xff"
        assert (back / "sub" / "more").read_text() == "more\n"
        assert (back / "sub" / "empty").is_dir()
        assert (back / "link").readlink() == Path("sub/bytes")
        assert (back / "dangling").readlink() == Path("/nowhere/at/all")
        assert os.access(back / "run", os.X_OK)
        assert not (back / "pipe").exists()  # special files are left out

    async def test_a_folder_replaces_files(self, box: Sandbox, tmp_path: Path) -> None:
        await box.exec(shell("mkdir copy; echo old > copy/file; echo kept > copy/kept; ln -s /etc/passwd copy/link"))
        (tmp_path / "file").write_text("new")
        (tmp_path / "link").write_text("new")
        await box.put_dir(tmp_path, "copy")
        assert (await box.exec(shell("cat copy/file copy/link copy/kept"))).stdout == b"newnewkept\n"

    async def test_two_copies_out_do_not_write_through_a_link(self, box: Sandbox, tmp_path: Path) -> None:
        victim, target = tmp_path / "victim", tmp_path / "target"
        victim.mkdir()
        await box.exec(shell(f"mkdir d; ln -s {victim} d/x"))
        await box.get_dir("d", target)
        await box.exec(shell("rm d/x; mkdir d/x; echo bad > d/x/file"))
        await box.get_dir("d", target)
        assert not list(victim.iterdir())
        assert (target / "x" / "file").read_text() == "bad\n"

    async def test_only_folders_are_copied(self, box: Sandbox, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        await box.write_file("file", b"")
        for attempt in (box.put_dir(tmp_path / "file", "x"), box.get_dir("file", tmp_path / "x")):
            with pytest.raises(NotADirectoryError):
                await attempt
        for attempt in (box.put_dir(tmp_path / "nothing", "x"), box.get_dir("nothing", tmp_path / "x")):
            with pytest.raises(FileNotFoundError, match="nothing"):
                await attempt
        assert not (tmp_path / "x").exists()

    async def test_reading_a_pipe_does_not_block(self, box: Sandbox) -> None:
        await box.exec(["mkfifo", "pipe"])
        with pytest.raises(OSError, match="not a regular file"):
            await box.read_file("pipe")

    # lifecycle

    async def test_sandboxes_are_apart(self, manager: CpuManager, box: Sandbox) -> None:
        other = await manager.create_sandbox(image=None, memory_bytes=0)
        assert other.id != box.id
        await box.write_file("mine", b"")
        with pytest.raises(FileNotFoundError):
            await other.read_file("mine")
        await other.aclose()

    async def test_closing_kills_and_is_idempotent(self, manager: CpuManager) -> None:
        mine = mark()
        sandbox = await manager.create_sandbox(image=None, memory_bytes=0)
        lease = manager.lease(1000, sandbox)
        await sandbox.exec(shell(f"env -i setsid sleep {mine} & :"))
        running = asyncio.ensure_future(sandbox.exec(["sleep", mine]))
        await until_there_is(f"sleep\0{mine}")
        await asyncio.gather(sandbox.aclose(), sandbox.aclose())
        await sandbox.aclose()
        with pytest.raises(SandboxLostError):
            await running
        assert not processes(mine)
        for attempt in (sandbox.exec(["true"]), sandbox.read_file("x"), sandbox.write_file("x", b"")):
            with pytest.raises(SandboxLostError):
                await attempt
        lease.release()

    async def test_closing_while_a_command_is_being_prepared(self, manager: CpuManager) -> None:
        sandbox = await manager.create_sandbox(image=None, memory_bytes=0)
        lease = manager.lease(1000, sandbox)
        data = b"x" * (8 << 20)
        running = [asyncio.ensure_future(sandbox.exec(["cat"], stdin=data, spill=True)) for _ in range(20)]
        await asyncio.sleep(0)
        await sandbox.aclose()
        async with asyncio.timeout(30):
            ended = await asyncio.gather(*running, return_exceptions=True)
        assert all(isinstance(each, (SandboxLostError, ExecResult)) for each in ended), ended
        assert any(isinstance(each, SandboxLostError) for each in ended)
        lease.release()

    async def test_a_cancelled_creation_leaves_nothing(self, manager: CpuManager) -> None:
        for delay_s in (0, 0.001, 0.003, 0.01, 0.03):
            creating = asyncio.ensure_future(manager.create_sandbox(image=None, memory_bytes=0))
            await asyncio.sleep(delay_s)
            creating.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await (await creating).aclose()


def reset_peak_kib() -> int:
    """Let the peak of this process's memory start anew; return what it has now."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_kib()


def peak_kib() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
