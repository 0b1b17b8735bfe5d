"""Run a program of many processes to its end, and see what is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

MARK = "ARL_TANGRAM_TESTED_PROGRAM"
LEAVING_S = 30  # for the processes of a cluster to notice that its program has ended
# Everything small and off the network; threads of torch would fight over the cores of other processes.
SPARING = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "WANDB_MODE": "disabled",
    "HYDRA_FULL_ERROR": "1",
    "PYTHONUNBUFFERED": "1",
}


@dataclass(frozen=True, slots=True)
class Ended:
    """A program that has ended.

    Attributes:
        code: what it exited with.
        output: what it has printed, errors included.
        left: the commands of its processes that were still there; they are killed.
    """

    code: int
    output: str
    left: list[str]


def ended(words: Sequence[str], folder: Path, environment: Mapping[str, str], *, limit_s: float) -> Ended:
    """Run a program in a folder and in a process group of its own, and return how it ended.

    Raises:
        TimeoutError: it has not ended within so many seconds, and was killed; the message has its last lines.
    """
    mark = uuid.uuid4().hex
    log = folder / "program.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            words,
            cwd=folder,
            env={**os.environ, **SPARING, **environment, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            lines = "\n".join(log.read_text(errors="replace").splitlines()[-60:])
            raise TimeoutError(f"{words} has not ended within {limit_s:g} s:\n{lines}") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            left = _end(mark, LEAVING_S if process.returncode == 0 else 0)
    return Ended(code, log.read_text(errors="replace"), left)


def _end(mark: str, patience_s: float) -> list[str]:
    """Wait for the processes with a mark to end, kill those that do not, and return their commands."""
    _, staying = psutil.wait_procs(_marked(mark), timeout=patience_s)
    commands: list[str] = []
    for process in {*staying, *_marked(mark)}:
        with suppress(psutil.Error):
            commands.append(" ".join(process.cmdline()) or process.name())
            process.kill()
    return commands


def _marked(mark: str) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
