"""Ctrl-C and SIGTERM in real programs: they leave in bounded time, say only that, and leave nothing behind."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from arl_tangram.managers.host.hierarchy import read_hierarchies
from arl_tangram.managers.host.owner import CGROUP_PREFIX

pytestmark = pytest.mark.usefixtures("bwrap")

PROGRAM = Path(__file__).with_name("interrupted.py")
ROOT = Path(__file__).parents[2]
MARK = "INTERRUPT_MARK"
LIMIT_S = 30.0
OUTLIVES = "outlives the runtime; what it runs was not ended"  # the one thing that has to be said
HELD_UP = "and nothing else ran meanwhile"  # on a machine that stands still for a moment
SPAWNS_S = 1.0  # the interpreter's own end, on a machine with two busy cores

KINDS = ["thread", "process", "command", "deaf"]
everywhere = pytest.mark.parametrize(
    ("host", "kind"), [*((host, kind) for host in ("asyncio", "with") for kind in KINDS), ("anyio", "command")]
)
hosts = pytest.mark.parametrize("host", ["asyncio", "with"])


@dataclass
class Program:
    """A program that runs, its standard error and the marks of what it starts."""

    process: subprocess.Popen[str]
    mark: str
    begun: Path
    temporary: Path
    errors: Path

    def until_begun(self, count: int) -> None:
        self.until(lambda: len(list(self.begun.iterdir())) == count)

    def until_commands(self, count: int) -> None:
        self.until(lambda: len(self.commands()) >= count)

    def until(self, condition: object) -> None:
        deadline_s = time.monotonic() + LIMIT_S
        while not condition():  # type: ignore[operator]
            assert self.process.poll() is None, self.errors.read_text()
            assert time.monotonic() < deadline_s, "the program does not get going"
            time.sleep(0.005)

    def until_line(self, line: str) -> None:
        assert self.process.stdout is not None
        assert any(said == f"{line}\n" for said in self.process.stdout)

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> float:
        self.process.send_signal(number)
        return time.monotonic()

    def left_within(self, since_s: float, limit_s: float) -> int:
        """Wait for its end, and return its exit code."""
        try:
            code = self.process.wait(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            pytest.fail(f"it does not leave:\n{self.errors.read_text()}")
        took_s = time.monotonic() - since_s
        assert took_s < limit_s, f"{took_s:.2f} s"
        return code

    def commands(self) -> list[int]:
        return [pid for pid, text in _processes("cmdline") if self.mark in text.split("\0") and "sleep" in text]

    def processes(self) -> list[int]:
        """Its own processes, workers, keepers and commands, by their environment or their arguments."""
        mine = f"{MARK}={self.mark}"
        marked = {pid for pid, text in _processes("environ") if mine in text.split("\0")}
        return sorted(marked | {pid for pid, text in _processes("cmdline") if self.mark in text} - {os.getpid()})

    def cgroups(self) -> list[Path]:
        parents = {folder for hierarchy in read_hierarchies().values() for folder in list(hierarchy.up())[:2]}
        return [path for parent in parents for path in parent.glob(f"{CGROUP_PREFIX}*-{self.process.pid}-*")]

    def folders(self) -> list[Path]:
        return [path for root in self.temporary.glob("arl_tangram-*") for path in root.iterdir()]

    def assert_nothing_left(self) -> None:
        deadline_s = time.monotonic() + 5  # what has been killed takes a moment to be gone
        while self.processes() and time.monotonic() < deadline_s:
            time.sleep(0.01)
        assert self.processes() == []
        assert self.cgroups() == []
        assert self.folders() == []

    def assert_said_only(self, last: str) -> None:
        said = self.errors.read_text()
        lines = [line for line in said.splitlines() if not line.endswith(OUTLIVES) and HELD_UP not in line]
        assert lines[-1] == last, said
        assert lines[0] == "Traceback (most recent call last):", said
        for word in ("destroyed", "is closed", "never", "Exception ignored", "Warning", "Error in", "Unhandled"):
            assert word not in said, said
        kept = {line for line in lines if line[:1] not in {" ", ""}}
        assert kept <= {
            "Traceback (most recent call last):",
            "During handling of the above exception, another exception occurred:",
            "The above exception was the direct cause of the following exception:",
            "asyncio.exceptions.CancelledError",
            last,
        }, said


def _processes(what: str) -> Iterator[tuple[int, str]]:
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                text = Path(f"/proc/{entry}/{what}").read_bytes().decode(errors="replace")
                state = Path(f"/proc/{entry}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            except OSError:
                continue
            if state not in "ZX":
                yield int(entry), text


@contextmanager
def program(
    tmp_path: Path, host: str, kind: str, *, grace_s: float = 1.0, moment: str = "running"
) -> Iterator[Program]:
    mark = f"600.{secrets.randbits(40)}"
    begun, temporary, errors = tmp_path / "begun", tmp_path / "tmp", tmp_path / "stderr"
    begun.mkdir()
    temporary.mkdir()
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), host, kind, str(grace_s), moment, mark, str(begun)],
            env={**os.environ, "TMPDIR": str(temporary), MARK: mark, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    with process:
        try:
            yield Program(process, mark, begun, temporary, errors)
        finally:
            process.kill()


def begin(running: Program, kind: str) -> None:
    running.until_begun(4)
    if kind == "command":
        running.until_commands(8)


@everywhere
def test_case_30_one_ctrl_c_ends_everything_and_leaves(tmp_path: Path, host: str, kind: str) -> None:
    with program(tmp_path, host, kind, grace_s=1.0) as running:
        begin(running, kind)
        code = running.left_within(running.interrupt(), 1.0 + 2.0 + SPAWNS_S)
        assert code == -signal.SIGINT  # 130 in a shell
        running.assert_nothing_left()
        running.assert_said_only("KeyboardInterrupt")


@everywhere
def test_case_30_a_second_ctrl_c_forces(tmp_path: Path, host: str, kind: str) -> None:
    with program(tmp_path, host, kind, grace_s=100.0) as running:
        begin(running, kind)
        running.interrupt()
        time.sleep(0.3)  # whoever presses twice
        if running.process.poll() is None:
            code = running.left_within(running.interrupt(), 2.0 + SPAWNS_S)
        else:
            assert kind != "deaf"
            code = running.process.returncode
        assert code == -signal.SIGINT
        running.assert_nothing_left()
        running.assert_said_only("KeyboardInterrupt")


@pytest.mark.parametrize("kind", ["thread", "process", "deaf"])
@pytest.mark.parametrize("presses", [1, 2])
def test_case_30_a_blocking_caller_is_interrupted(tmp_path: Path, kind: str, presses: int) -> None:
    with program(tmp_path, "run_sync", kind, grace_s=1.0 if presses == 1 else 100.0) as running:
        running.until_begun(1)
        since_s = running.interrupt()
        if presses == 2:
            time.sleep(0.3)
            if running.process.poll() is None:
                since_s = running.interrupt()
        assert running.left_within(since_s, 1.0 + 2.0 + SPAWNS_S) == -signal.SIGINT
        running.assert_nothing_left()
        running.assert_said_only("KeyboardInterrupt")


@hosts
@pytest.mark.parametrize("moment", ["opening", "closing"])
@pytest.mark.parametrize("presses", [1, 2])
def test_case_30_ctrl_c_while_the_runtime_is_opened_or_closed(
    tmp_path: Path, host: str, moment: str, presses: int
) -> None:
    with program(tmp_path, host, "none", moment=moment) as running:
        running.until_line(moment)
        since_s = running.interrupt()
        if presses == 2:
            time.sleep(0.2)
            running.interrupt()
        assert running.left_within(since_s, 1.0 + 2.0 + SPAWNS_S) == -signal.SIGINT
        running.assert_nothing_left()
        running.assert_said_only("KeyboardInterrupt")


@hosts
def test_sigterm_can_be_made_to_do_the_same(tmp_path: Path, host: str) -> None:
    with program(tmp_path, host, "command", moment="terminated") as running:
        begin(running, "command")
        assert running.left_within(running.interrupt(signal.SIGTERM), 1.0 + 2.0 + SPAWNS_S) == -signal.SIGINT
        running.assert_nothing_left()
        running.assert_said_only("KeyboardInterrupt")


@pytest.mark.parametrize("kind", ["process", "command"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["term", "kill"])
def test_a_program_that_is_ended_hard_leaves_no_process(tmp_path: Path, kind: str, number: signal.Signals) -> None:
    """Python does nothing at a SIGTERM; folders and cgroups are removed by the next start."""
    with program(tmp_path, "asyncio", kind) as running:
        begin(running, kind)
        assert running.left_within(running.interrupt(number), SPAWNS_S) == -number
        deadline_s = time.monotonic() + 5
        while running.processes() and time.monotonic() < deadline_s:
            time.sleep(0.01)
        assert running.processes() == []
        assert running.errors.read_text() == ""


@pytest.mark.parametrize("closes", [True, False], ids=["closes", "forgets"])
def test_case_49_a_late_end_of_a_thread_is_dropped_quietly(tmp_path: Path, closes: bool) -> None:
    """The main function starts an action of a second on a thread, and returns at once."""
    script = tmp_path / "late.py"
    script.write_text(
        "import asyncio, time\n"
        "import arl_tangram as tangram\n"
        "@tangram.action()\n"
        "def late() -> None: time.sleep(1)\n"
        "async def main() -> None:\n"
        "    tg = await tangram.Tangram().start()\n"
        "    task = asyncio.create_task(late())\n"
        "    await asyncio.sleep(0.1)\n"
        f"    {'await tg.aclose()' if closes else ''}\n"
        f"    {'await asyncio.gather(task, return_exceptions=True)' if closes else ''}\n"
        "asyncio.run(main())\n"
        "time.sleep(1.2)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "always", str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0
    said = [line for line in done.stderr.splitlines() if not line.endswith(OUTLIVES)]
    assert said == []
