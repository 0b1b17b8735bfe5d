"""Watch one trainer from its start to its end: hear what it tells, bound what it does, see what it leaves; blocks."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

from arl_tangram.bench.faults.cases import BLOCKED_S, ENDED_S, LARGE_S, NAMED_S, Case, Promise
from arl_tangram.bench.faults.left import VARIABLE, marked
from arl_tangram.bench.faults.trainer import Row
from arl_tangram.bench.faults.where import Where

START_S = 60.0
LOOK_S = 0.02
NAMED = "held the event loop"
_TRAINER = (sys.executable, "-P", "-m", "arl_tangram.bench.faults.trainer")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a trainer ended.

    Attributes:
        names: of the cases that it had.
        pid: its number.
        code: exit code, below 0 for a signal.
        closed: whether it said that its runtime was closed.
        ended_s: seconds from its last word, or from its being killed, until it and what it had started were gone.
        left: the processes that it left behind; they were killed then.
        behind: folders, cgroups and containers that it left behind.
    """

    names: tuple[str, ...]
    pid: int
    code: int
    closed: bool
    ended_s: float
    left: int
    behind: int


class TrainerProcess:
    """One trainer and its cases.

    Args:
        where: its sandboxes are.
        cases: what it is to try.
        tell: hears the name of each case that begins.
    """

    def __init__(self, where: Where, cases: Sequence[Case], tell: Callable[[str], None]) -> None:
        self._where = where
        self._cases = cases
        self._tell = tell
        self._had: list[Case] = []
        self._mark = secrets.token_hex(8)
        self._words: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._errors: list[str] = []
        self._is_named = threading.Event()
        self._closed = False
        self._process = subprocess.Popen(
            [*_TRAINER, *where.argv(), *(case.name for case in cases)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, VARIABLE: self._mark},
        )
        pipes = ((self._hear, self._process.stdout), (self._hear_errors, self._process.stderr))
        self._readers = [threading.Thread(target=hear, args=(pipe,), daemon=True) for hear, pipe in pipes]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def wait_open(self) -> str:
        """Wait until its runtime is open; return what enforces grants.

        Raises:
            RuntimeError: it does not start.
        """
        word = self._next(START_S)
        if word is None or "opened" not in word:
            self._readers[1].join(1)
            raise RuntimeError("a trainer did not start:\n" + "".join(self._errors))
        return str(word["opened"])

    def rows(self) -> Iterator[Row]:
        """Yield what comes of its cases, up to the first one that it does not survive."""
        for case in self._cases:
            self._had.append(case)
            row = self._row(case)
            yield row
            if row.answer_s is None:
                return

    def end(self) -> Ending:
        """Wait for its end, kill it if that does not come, and see what it has left."""
        asked_s = time.monotonic()
        if not self._ends():
            asked_s = time.monotonic()
            self._process.kill()
        code = self._process.wait()
        strays = sum(case.strays for case in self._had)
        while len(left := marked(self._mark)) > strays and time.monotonic() < asked_s + ENDED_S:
            time.sleep(LOOK_S)
        ended_s = time.monotonic() - asked_s
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for reader in self._readers:
            reader.join()
        while not self._words.empty():
            self._closed |= self._words.get().get("closed", False)
        names = tuple(case.name for case in self._had)
        return Ending(names, self.pid, code, self._closed, ended_s, len(left), self._where.behind(self.pid))

    def _row(self, case: Case) -> Row:
        """Wait for what comes of a case; if it says nothing, say why."""
        begins = self._next(START_S)
        if begins is not None and "begins" in begins:
            self._tell(case.name)
            begun_s = time.monotonic()
            word = self._next(_limit_s(case), until_named=case.promise is Promise.BLOCKS)
            note = "named in the log" if self._is_named.wait(int(case.is_named)) else ""
            self._is_named.clear()
            if word is not None and "row" in word:
                told: dict[str, Any] = {**word["row"], "left": tuple(word["row"]["left"]), "note": note}
                return Row(**told)
            if word is None and self._process.poll() is None:
                note = note or ("not named: no Python code can run" if case.promise is Promise.BLOCKS else "")
                return Row(case.name, "no answer", held_s=time.monotonic() - begun_s, note=note)
            self._closed = word is not None and word["closed"]
        code = self._process.wait(ENDED_S)
        note = "the runtime closed" if self._closed else ""
        if case.promise is not Promise.ENDS:  # a defect: say what it was
            note = "".join(self._errors[-1:]).strip()
        return Row(case.name, f"the trainer ended: {_words(code)}", note=note)

    def _next(self, within_s: float, *, until_named: bool = False) -> dict[str, Any] | None:
        """Return what it says next; None at its end, when the time is up, or when it has been named as blocked."""
        until_s = time.monotonic() + within_s
        while (left_s := until_s - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                return self._words.get(timeout=min(left_s, LOOK_S))
            if self._process.poll() is not None:
                self._readers[0].join(1)  # what it has started may hold the pipe open
                return None if self._words.empty() else self._words.get()
            if until_named and self._is_named.is_set():
                return None
        return None

    def _ends(self) -> bool:
        """Wait until it has ended by itself; a blocked one does not."""
        if not any(case.promise is Promise.BLOCKS for case in self._had):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(ENDED_S)
        return self._process.poll() is not None

    def _hear(self, pipe: IO[str]) -> None:
        with pipe:
            for line in pipe:
                with contextlib.suppress(json.JSONDecodeError):
                    self._words.put(json.loads(line))

    def _hear_errors(self, pipe: IO[str]) -> None:
        with pipe:
            for line in pipe:
                self._errors.append(line)
                if NAMED in line:
                    self._is_named.set()


def _limit_s(case: Case) -> float:
    """Return how long to wait for a row: the trainer itself bounds all but the blocked ones."""
    if case.promise is Promise.BLOCKS:
        return NAMED_S if case.is_named else BLOCKED_S
    return 4 * case.answer_s + LARGE_S


def _words(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
