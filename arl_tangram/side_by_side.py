"""Run many tasks, several at once in processes of their own, and yield what they return as it comes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

_T = TypeVar("_T")
_O = TypeVar("_O")


def side_by_side(tasks: Sequence[_T], workers: int, run_one: Callable[[_T], _O]) -> Iterator[_O]:
    """Yield the outcome of each task, in the order in which they end.

    Args:
        tasks: begun in this order; they can be pickled, as can their outcomes.
        workers: processes at once, from 1; 1 runs all tasks in this process.
        run_one: runs one task; a function of a module.

    Raises:
        BaseException: what a task raised; those that had not begun are not.
    """
    if workers == 1:
        yield from map(run_one, tasks)
        return
    # Spawned, not forked: a fork copies the locks of whatever threads the caller has.
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            for done in as_completed([pool.submit(run_one, task) for task in tasks]):
                yield done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
