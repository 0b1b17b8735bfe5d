"""Commands in a session, over the three shells that containers have: dash, busybox and bash."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import anyio
import pytest

from arl_tangram.managers.docker import script
from arl_tangram.managers.docker.exchange import Exchange
from arl_tangram.managers.docker.guards import Guards
from arl_tangram.managers.docker.session import Session, SessionError, open_session
from arl_tangram.managers.running_time import RunningTime
from unit.managers.docker.local_shells import LocalDaemon

# ruff: noqa: ASYNC240 - nothing else runs on these loops

PATH = "/usr/local/bin:/usr/bin:/bin"


@pytest.fixture(params=["dash", "busybox", "bash"])
async def daemon(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LocalDaemon]:
    started = LocalDaemon(request.param, tmp_path, {"PATH": PATH, "LANG": "C.UTF-8"})
    yield started
    await started.aclose()


@pytest.fixture
async def session(daemon: LocalDaemon) -> AsyncIterator[Session]:
    opened = await open_session(
        daemon,
        "container",
        number=1,
        env={},
        guard=Guards().add(),
        group=None,
        limiter=anyio.CapacityLimiter(1),
        clock=RunningTime(),
    )
    yield opened
    opened.hang_up()
    await opened.settled()


@pytest.fixture
def work(tmp_path: Path) -> str:
    folder = tmp_path / "work"
    folder.mkdir()
    return str(folder)


async def run(
    session: Session,
    *argv: str,
    cwd: str = "/",
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    limit: int = 1 << 20,
    stdin_file: str | None = None,
    spill: tuple[str, str] | None = None,
) -> Exchange:
    redirection = script.Redirection(stdin, stdin_file, spill)
    text = script.command(argv, cwd=cwd, env=env or {}, redirection=redirection)
    exchange = session.begin(text, limit)
    async with asyncio.timeout(20):
        await exchange.done
    return exchange


async def shell(session: Session, text: str) -> Exchange:
    return await run(session, "sh", "-c", text)


def told(exchange: Exchange) -> tuple[int | None, bytes, bytes]:
    return exchange.code, exchange.stdout.content(), exchange.stderr.content()


@pytest.mark.parametrize(
    ("text", "code"), [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -TERM $$", 143), ("kill -KILL $$", 137)]
)
async def test_exit_codes(session: Session, text: str, code: int) -> None:
    assert told(await shell(session, text)) == (code, b"", b"")  # nor does the shell say `Killed`


async def test_every_byte_passes_both_streams(session: Session) -> None:
    octal = "".join(f"\\{code:03o}" for code in range(256))
    done = await shell(session, f"printf '{octal}'; printf '{octal}' >&2; printf x")
    assert told(done) == (0, bytes(range(256)) + b"x", bytes(range(256)))


async def test_every_byte_passes_through_words_and_variables(session: Session) -> None:
    word = os.fsdecode(bytes(range(1, 256)))
    done = await run(
        session, "sh", "-c", 'printf "%s|" "$@" "$WORD"', "sh", word, "", "*", "$HOME", "a\n", env={"WORD": word}
    )
    whole = bytes(range(1, 256))
    assert done.stdout.content() == whole + b"||*|$HOME|a\n|" + whole + b"|"


async def test_a_program_sees_its_own_name_and_nothing_of_the_session(session: Session) -> None:
    done = await run(session, "sh", "-c", "echo $0; ls /proc/self/fd | wc -l; grep SigIgn /proc/self/status; env")
    lines = done.stdout.content().splitlines()
    assert lines[:2] == [b"sh", b"4"]  # 0, 1, 2 and the listing itself
    # The first 31 signals: those of real time are the C library's own, and may come ignored from the tests themselves.
    assert not int(lines[2].removeprefix(b"SigIgn:"), 16) & 0x7FFF_FFFF
    assert not [line for line in lines if line.startswith(b"arl_")]


async def test_the_program_is_found_on_the_path_of_its_own_environment(session: Session, work: str) -> None:
    program = Path(work, "cat")  # not the one that busybox has built in
    program.write_text("#!/bin/sh\necho mine $1\n")
    program.chmod(0o755)
    assert told(await run(session, "cat", "x", env={"PATH": f"{work}:{PATH}"})) == (0, b"mine x\n", b"")
    assert (await run(session, "cat", env={"PATH": "/nowhere"})).refusal == (errno.ENOENT, "program")


async def test_short_stdin_arrives_whole(session: Session) -> None:
    data = bytes(range(256)) * (script.INLINE_STDIN_BYTES // 256)
    assert (await run(session, "cat", stdin=data)).stdout.content() == data
    assert (await run(session, "cat")).stdout.content() == b""
    assert told(await run(session, "true", stdin=data)) == (0, b"", b"")


async def test_long_stdin_arrives_whole_and_leaves_no_file(session: Session, work: str) -> None:
    path, data = f"{work}/of/ours/1.in", os.urandom(1 << 20)
    for _ in range(3):
        await session.feed(data, path)
        assert (await run(session, "cat", stdin_file=path)).stdout.content() == data
        assert not os.path.exists(path)
    assert os.stat(f"{work}/of/ours").st_mode & 0o777 == 0o700


async def test_a_file_that_was_given_up_is_removed_before_the_next(session: Session, work: str) -> None:
    stale = f"{work}/0.in"
    Path(stale).write_bytes(b"half")
    await session.feed(b"x" * 10_000, f"{work}/1.in", [stale])
    assert os.listdir(work) == ["1.in"]


async def test_stdin_that_cannot_be_written_ends_the_session(session: Session, work: str) -> None:
    os.mkdir(f"{work}/1.in")
    with pytest.raises(OSError, match="cannot keep the input"):
        await session.feed(b"echo never\n" * 100_000, f"{work}/1.in")
    assert not session.is_usable
    await asyncio.wait_for(session.gone, 10)


async def test_long_text_from_a_file(session: Session, work: str) -> None:
    text = script.command(["printf", "%s", "x" * 100_000], cwd="/", env={}, redirection=script.Redirection())
    path = f"{work}/1.in"
    await session.feed(script.in_file(text, path), path)
    exchange = session.begin(script.from_file(path), 1 << 20)
    await exchange.done
    assert (exchange.code, exchange.stdout.total, os.listdir(work)) == (0, 100_000, [])


async def test_variables_of_any_name_reach_the_command(session: Session) -> None:
    env = {
        "A.B": "odd =x",
        "1": "one",
        "IFS": "i",
        "PWD": "/elsewhere",
        "UID": "7",
        "PLAIN": "p\n'",
        "OPTIND": "x",
        "_": "u",
    }
    done = await run(session, "env", env=env)
    for name in ("A.B", "1", "UID", "IFS", "OPTIND"):
        assert f"{name}={env[name]}\n".encode() in done.stdout.content()
    assert b"PLAIN=p\n'" in done.stdout.content()


async def test_odd_variables_need_the_program_env(session: Session, work: str) -> None:
    os.symlink("/bin/true", f"{work}/true")
    done = await run(session, "true", env={"A.B": "x", "PATH": work})
    assert done.refusal == (errno.ENOENT, "env")


@pytest.mark.parametrize(
    ("argv", "cwd", "refusal"),
    [
        (["no-such-program"], "/", (errno.ENOENT, "program")),
        (["/no/such/program"], "/", (errno.ENOENT, "program")),
        (["/etc/passwd"], "/", (errno.EACCES, "program")),
        (["/etc"], "/", (errno.EACCES, "program")),
        (["passwd"], "/", (errno.EACCES, "program")),  # on the path, but not executable
        (["true"], "/no/such/folder", (errno.ENOENT, "cwd")),
        (["true"], "/etc/passwd", (errno.ENOTDIR, "cwd")),
    ],
)
async def test_what_cannot_be_started(session: Session, argv: list[str], cwd: str, refusal: tuple[int, str]) -> None:
    done = await run(session, *argv, cwd=cwd, env={"PATH": "/nowhere:/etc"} if argv == ["passwd"] else None)
    assert done.refusal == refusal
    assert (done.stdout.content(), done.stderr.content()) == (b"", b"")
    assert told(await run(session, "echo", "next")) == (0, b"next\n", b"")


async def test_nothing_lasts_from_command_to_command(session: Session, work: str) -> None:
    before = await shell(session, "pwd; umask; ulimit -n; env | grep -v ARL | sort; trap")
    ran = await run(session, "sh", "-c", "cd /; umask 0; export X=1; trap '' INT; exit 9", cwd=work, env={"Y": "2"})
    assert ran.code == 9
    assert (await shell(session, "pwd; umask; ulimit -n; env | grep -v ARL | sort; trap")).stdout.content() == (
        before.stdout.content()
    )


@pytest.mark.parametrize("signal", ["TERM", "INT", "HUP", "QUIT", "USR1"])
async def test_a_signal_to_the_process_group_spares_the_session(session: Session, signal: str) -> None:
    done = await shell(session, f"kill -{signal} 0; sleep 5; echo survived")
    assert done.stdout.content() == b""
    assert told(await run(session, "echo", "next")) == (0, b"next\n", b"")


async def test_a_command_that_kills_its_shell_ends_the_session(session: Session) -> None:
    exchange = session.begin(
        script.command(["sh", "-c", "echo out; kill -9 $PPID"], cwd="/", env={}, redirection=script.Redirection()), 100
    )
    with pytest.raises(SessionError):
        await exchange.done
    assert exchange.stdout.content() == b"out\n"
    assert session.gone.done()


async def test_a_false_report_is_output(session: Session) -> None:
    forged = "\\036" + "0" * 32 + " E 0 1.0 1\\n0m0s 0m0s\\n0m0s 0m0s\\n"
    done = await shell(session, f"printf '{forged}'; printf '\\036'; exit 4")
    assert done.code == 4
    assert done.stdout.content() == forged.encode().decode("unicode_escape").encode() + b"\x1e"


async def test_spilled_output_is_read_back(session: Session, work: str) -> None:
    spill = (f"{work}/of/1.stdout", f"{work}/of/1.stderr")
    done = await run(session, "sh", "-c", "seq 1 1000; echo oh >&2", spill=spill)
    assert told(done) == (0, b"", b"")
    whole = b"".join(b"%d\n" % number for number in range(1, 1001))
    assert Path(spill[0]).read_bytes() == whole
    for limit in (100, 101, len(whole) - 1, len(whole), len(whole) + 1):
        back = session.begin(script.read_back(spill, limit), limit, parts="Zz")
        await back.done
        expected = whole if limit >= len(whole) else whole[: limit // 2] + whole[-(limit - limit // 2) :]
        assert (back.stdout.content(), back.stderr.content()) == (expected, b"oh\n")
        assert (back.stdout.total, back.stdout.is_truncated) == (len(whole), limit < len(whole))


async def test_spilling_where_nothing_can_be_written(session: Session) -> None:
    done = await run(session, "true", spill=("/proc/1.stdout", "/proc/1.stderr"))
    assert done.refusal == (errno.ENOSPC, "spill")


async def test_times_are_the_commands_own(session: Session) -> None:
    await shell(session, "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done")  # not counted again
    idle = await run(session, "sleep", "0.2")
    assert 0.19 <= idle.duration_s < 5
    assert idle.cpu_s < 0.1
    started_s = time.monotonic()
    busy = await shell(session, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
    assert 0.01 < busy.cpu_s <= time.monotonic() - started_s + 0.02


async def test_a_script_of_ours(session: Session) -> None:
    exchange = session.begin(script.own("cat; cd /etc; pwd >&2; exit 71", script.Redirection(b"in")), 100)
    await exchange.done
    assert told(exchange) == (71, b"in", b"/etc\n")
    assert exchange.start is not None


async def test_output_of_a_flood_is_bounded_while_it_streams(session: Session) -> None:
    done = await run(session, "sh", "-c", "yes | head -c 50000000", limit=1000)
    assert (done.stdout.total, done.stdout.is_truncated, len(done.stdout.content())) == (50_000_000, True, 1000)


async def test_one_command_at_a_time(session: Session) -> None:
    text = script.command(["sleep", "0.2"], cwd="/", env={}, redirection=script.Redirection())
    exchange = session.begin(text, 100)
    assert not session.is_usable
    with pytest.raises(SessionError):
        session.begin(text, 100)
    await exchange.done
    assert session.is_usable


async def test_an_idle_session_ends_when_told(session: Session) -> None:
    assert await session.end(10)
    assert not session.is_usable
    with pytest.raises(SessionError):
        session.begin(b"echo", 1)


async def test_hanging_up_fails_the_command(session: Session) -> None:
    text = script.command(["sleep", "100"], cwd="/", env={}, redirection=script.Redirection())
    exchange = session.begin(text, 100)
    await asyncio.sleep(0.05)
    session.hang_up(reason="the daemon is gone")
    with pytest.raises(SessionError):
        await exchange.done
    assert session.interrupted == "the daemon is gone"
    assert not session.is_killed


class Groups:
    """A cgroup that tells when it was killed, beside a stream that tells when it was hung up."""

    def __init__(self, told: list[str]) -> None:
        self._told = told

    def enter(self, pid: int) -> None:
        """Fail, as that of a container that is gone."""
        raise OSError(errno.ENOENT, "gone")

    def kill(self, spared: object = ()) -> bool:
        """Tell."""
        self._told.append("killed")
        return True

    def remove(self) -> bool:
        """Do nothing."""
        return True


async def test_what_opens_too_late_is_killed_before_its_guard_could_kill_others(
    daemon: LocalDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    hang_up = Session.hang_up

    def tell(session: Session) -> None:
        told.append("hung up")
        hang_up(session)

    monkeypatch.setattr(Session, "hang_up", tell)
    limiter = anyio.CapacityLimiter(1)
    with pytest.raises(OSError, match="gone"):
        await open_session(
            daemon,
            "container",
            number=1,
            env={},
            guard=Guards().add(),
            group=Groups(told),
            limiter=limiter,  # type: ignore[arg-type]
            clock=RunningTime(),
        )
    assert told == ["killed", "hung up"]
