"""What a shared runtime is declared as, in lines that two processes can compare. Pure.

Only what was declared counts, not what was found by it: `LocalPool()` is the same line on each machine.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from itertools import takewhile
from os import PathLike, fsdecode
from typing import Any, cast

from arl_tangram.setup import Setup

_ALIKE = "the same lines, in another order or number"
_LONG = 100
"""Of a longer line that both sides have, only what differs is told."""
_NODE = "node "
_HEAD = re.compile(r"quota: Quota\(name='[^']*'|node [^:]*|[^:]*:")
"""The beginning of a line that says what it is about."""


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


def without_nodes(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the lines of a configuration, but for those about nodes."""
    return tuple(line for line in lines if not line.startswith(_NODE))


def fingerprint(lines: Sequence[str]) -> str:
    """Return what two configurations have in common only if all their lines are the same."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def differences(there: Sequence[str], here: Sequence[str]) -> str:
    """Return the lines that only one side has, in one text; of long ones that both have, only what differs in them.

    Args:
        there: of the shared runtime.
        here: of who wants to join it.
    """
    gone = {_head(line): line for line in there if line not in here}
    new = {_head(line): line for line in here if line not in there}
    only_there = [f"only there: {_difference(line, new.get(head))}" for head, line in gone.items()]
    only_here = [f"only here: {_difference(line, gone.get(head))}" for head, line in new.items()]
    return "; ".join([*only_there, *only_here]) or _ALIKE


def refusal(message: Mapping[str, Any], lines: Sequence[str]) -> str | None:
    """Return why whoever greets is refused, who has said what it was declared with; None if that is the same.

    Args:
        message: the greeting. It `made` the runtime, if it says so; else, if it is `without_nodes`, it only expects
            what the factory declares.
        lines: of the shared runtime.
    """
    if message.get("fingerprint") is None:
        return None
    there = without_nodes(lines) if message.get("without_nodes") else lines
    if message["fingerprint"] == fingerprint(there):
        return None
    told = differences(there, message.get("configuration", ()))
    if message.get("made"):
        return (
            "the function that share() was given does not declare the same in each process: "
            f"{told}; let it not depend on the process, as by sys.executable or a variable of the environment"
        )
    return f"the shared runtime {message.get('name')!r} has another configuration; {told}"


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


def _head(line: str) -> str:
    found = _HEAD.match(line)
    return line if found is None else found[0]


def _difference(line: str, other: str | None) -> str:
    """Return a line, or if it is long the arguments in it that the other one does not have."""
    if other is None or len(line) <= _LONG:
        return line
    head = _head(line)
    start = _alike(line, other)
    end = len(line) - _alike(reversed(line[start:]), reversed(other[start:]))
    start = max(line.rfind(", ", 0, start) + 2, line.rfind("(", 0, line.rfind("=", 0, start)) + 1, len(head))
    while end < len(line) and line[end] not in ",)":
        end += 1
    return f"{head} … {line[start:end]} …"


def _alike(one: Iterable[str], other: Iterable[str]) -> int:
    """Return with how many characters in common two texts begin."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _reference(value: object) -> str:
    """Name a function or a class, or the class of anything else, whose text may differ from process to process."""
    named = cast("Callable[..., Any]", value) if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}:{named.__qualname__}"


def _keys(keys: Sequence[str]) -> str:
    return f" with {len(keys)} keys" if keys else ""
