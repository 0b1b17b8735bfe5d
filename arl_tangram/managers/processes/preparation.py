"""What a worker needs to become like the program that starts it: where modules are, and what `__main__` is."""

from __future__ import annotations

import json
import multiprocessing.spawn
import os
import pickle
import sys
from functools import cache
from typing import Any, NamedTuple

from arl_tangram.managers.processes.reference import MAIN, main_is_a_file


@cache
def interpreter() -> tuple[str, ...]:
    """Return the program and the flags with which this process runs."""
    line = multiprocessing.spawn.get_command_line()
    return tuple(os.fsdecode(part) for part in line[: line.index("-c")])


class Preparation(NamedTuple):
    """What a new worker is sent.

    Attributes:
        path: the entries of `sys.path`, as the program of a worker reads them.
        program: what `multiprocessing.spawn.prepare` takes, pickled.
    """

    path: bytes
    program: bytes


def preparation() -> Preparation:
    """Return what makes a worker like this program as it is now.

    Not made by `multiprocessing.spawn.get_preparation_data`: that settles the start method of the whole program.
    """
    folder = _folder()
    path = [entry or folder for entry in map(str, sys.path)]
    told: dict[str, Any] = {"sys_path": path, "sys_argv": list(map(str, sys.argv)), "dir": folder}
    main = sys.modules[MAIN]
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if name is not None:
        told["init_main_from_name"] = name
    elif main_is_a_file():
        told["init_main_from_path"] = os.path.join(folder, str(main.__file__))
    return Preparation(json.dumps(path).encode(), pickle.dumps(told))


def _folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was removed
        return "/"
