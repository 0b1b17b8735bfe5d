"""What there is to compute, each by itself, and what came out of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from arl_tangram.progress import Tell
from arl_tangram.side_by_side import side_by_side
from arl_tangram.studies.needs import Found, Need
from arl_tangram.studies.runs import Figures, Run
from arl_tangram.studies.training import Steps, Training

Task = Run | Need | Training
Outcome = Figures | Found | Steps
_TOLD = 100


class Outcomes:
    """What tasks came to, by the tasks.

    Args:
        known: to begin with.
    """

    def __init__(self, known: Mapping[Task, Outcome] | None = None) -> None:
        self._known = dict(known or {})

    def run(self, tasks: Iterable[Task], workers: int, tell: Tell) -> None:
        """Run those that are not known, each once, and say how far it is.

        Raises:
            TangramError: what a task raised.
        """
        new = [task for task in dict.fromkeys(tasks) if task not in self._known]
        every = max(1, len(new) // _TOLD)
        for done, (task, outcome) in enumerate(side_by_side(new, workers, _with_its_outcome)):
            self._known[task] = outcome
            if done % every == 0:
                tell(words(task), done, len(new))

    def figures(self, run: Run) -> Figures:
        """Return those of a simulation."""
        found = self._known[run]
        assert isinstance(found, Figures)
        return found

    def needed(self, need: Need) -> Found:
        """Return what a search has found."""
        found = self._known[need]
        assert isinstance(found, Found)
        return found

    def steps(self, training: Training) -> Steps:
        """Return those of a training."""
        found = self._known[training]
        assert isinstance(found, Steps)
        return found

    def took_s(self, tasks: Iterable[Task]) -> float:
        """Return the CPU seconds that tasks took together."""
        return sum(self._known[task].took_s for task in dict.fromkeys(tasks))

    def items(self) -> Sequence[tuple[Task, Outcome]]:
        """Return all of them, in the order in which they came."""
        return tuple(self._known.items())


def words(task: Task) -> str:
    """Say what a task is about."""
    run = task.run if isinstance(task, Need) else task
    about = f"{type(run.workload).__name__}, batch {run.workload.rollouts:,}, {run.contender}, seed {run.seed}"
    if isinstance(task, Need):
        return f"{about}: the least {task.of}"
    return f"{about}: {task.steps} steps" if isinstance(task, Training) else about


def _with_its_outcome(task: Task) -> tuple[Task, Outcome]:
    return task, task.outcome()
