"""What a shared runtime is declared as, in lines that two processes can compare. Pure.

Only what was declared counts, not what was found by it: `LocalPool()` is the same line on each machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from os import PathLike, fsdecode
from typing import Any, cast

from arl_tangram.setup import Setup

_ALIKE = "the same lines, in another order or number"


def describe(setup: Setup, nodes: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the lines of a configuration; secrets are in none of them.

    Args:
        setup: of the runtime that the user's factory has returned.
        nodes: lines about the nodes, if they are declared.
    """
    limits = (
        f"kill_grace_s={setup.kill_grace_s:g}, max_threads={setup.max_threads}, max_processes={setup.max_processes}"
    )
    parts = [
        *([] if setup.pool is None else [f"pool: {words(setup.pool)}"]),
        *([] if setup.gpus is None else [f"gpus: {words(setup.gpus)}"]),
        *(f"quota: {words(quota)}{_keys(quota.keys)}" for quota in sorted(setup.quotas, key=lambda one: one.name)),
        f"policy: {words(setup.policy)}",
        f"order: {setup.order}",
        f"limits: {limits}",
    ]
    return (*parts, *nodes)


def fingerprint(lines: Sequence[str]) -> str:
    """Return what two configurations have in common only if all their lines are the same."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def differences(there: Sequence[str], here: Sequence[str]) -> str:
    """Return the lines that only one side has, in one text.

    Args:
        there: of the shared runtime.
        here: of who wants to join it.
    """
    only_there = [f"only there: {line}" for line in there if line not in here]
    only_here = [f"only here: {line}" for line in here if line not in there]
    return "; ".join([*only_there, *only_here]) or _ALIKE


def words(value: object) -> str:
    """Write a declared value so that equal declarations are equal texts, in any process."""
    if value is None or (isinstance(value, bool | int | float | str | bytes) and not isinstance(value, Enum)):
        return repr(value)
    if isinstance(value, Enum):
        return f"{type(value).__qualname__}.{value.name}"
    if isinstance(value, PathLike):
        return repr(fsdecode(cast("PathLike[str]", value)))
    if isinstance(value, partial):
        made = cast(Any, value)
        parts = [words(made.func), *map(words, made.args), *(f"{name}={words(v)}" for name, v in made.keywords.items())]
        return f"partial({', '.join(parts)})"
    if is_dataclass(value) and not isinstance(value, type):
        shown = [f"{field.name}={words(getattr(value, field.name))}" for field in fields(value) if field.repr]
        return f"{type(value).__qualname__}({', '.join(shown)})"
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value).items()
        return "{" + ", ".join(sorted(f"{words(key)}: {words(each)}" for key, each in pairs)) + "}"
    if isinstance(value, AbstractSet):
        return "{" + ", ".join(sorted(words(each) for each in cast("AbstractSet[object]", value))) + "}"
    if isinstance(value, Sequence):
        return "(" + ", ".join(words(each) for each in cast("Sequence[object]", value)) + ")"
    return _reference(value)


def _reference(value: object) -> str:
    """Name a function or a class, or the class of anything else, whose text may differ from process to process."""
    named = cast("Callable[..., Any]", value) if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}:{named.__qualname__}"


def _keys(keys: Sequence[str]) -> str:
    return f" with {len(keys)} keys" if keys else ""
