"""Recorded trajectories, read from files of comma-separated values or JSON lines: what each called, when, how long.

Two kinds of files, told apart by their columns. A file of calls has `traj`, `start_s` (from the beginning of the
trajectory) and `dur_s`; a file of trajectories has `traj` and `span_s` (how long the whole of it took). Both may have
`group`, and calls may have `tool`; other columns are not looked at, and named. In a file of JSON lines each line is an
object with such fields, of a call or of a trajectory; a field that is null or left out is an empty one. Files that are
compressed by gzip are read as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from arl_tangram.replay.tables import CALL_COLUMNS, DURATION, SPAN, START, TOOL, RecordingError, Table, and_


class RecordedCall(NamedTuple):
    """One call of a recorded trajectory.

    Attributes:
        start_s: when it began, from the beginning of its trajectory.
        duration_s: how long it took; None if its end was not recorded.
        tool: what was called; empty if the file does not say.
    """

    start_s: float
    duration_s: float | None
    tool: str


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded trajectory.

    Attributes:
        name: as in the files.
        group: what it belongs to; empty if the files do not say.
        span_s: how long all of it took; None without a file of trajectories.
        calls: in the order of the file.
    """

    name: str
    group: str
    span_s: float | None = None
    calls: list[RecordedCall] = field(default_factory=list[RecordedCall])


def read(paths: Sequence[Path]) -> list[Recorded]:
    """Read trajectories in the order of their file, or of their first calls if there is no such file.

    Raises:
        RecordingError: a file or row that says nothing usable, or a call of a trajectory that the files of trajectories
            do not have.
        OSError: a file cannot be read.
    """
    return read_with_notes(paths)[0]


def read_with_notes(paths: Sequence[Path]) -> tuple[list[Recorded], list[str]]:
    """Read trajectories as `read` does; say what of the files is not looked at, or may not be whole."""
    for number, path in enumerate(paths):
        if any(path.samefile(other) for other in paths[:number]):
            raise RecordingError(f"{path} is given twice: its calls would be made twice")
    tables = [table for path in paths for table in Table.read(path)]
    known: dict[tuple[str, str], Recorded] = {}
    for table in tables:
        if table.is_of_trajectories:
            _add_trajectories(table, known)
    listed = bool(known)
    calls = [table for table in tables if not table.is_of_trajectories]
    if not calls:
        raise RecordingError(f"no file of calls among {', '.join(map(str, paths))}: none has {and_(CALL_COLUMNS)}")
    for table in calls:
        _add_calls(table, known, listed=listed)
    unknown = {column: None for table in tables for column in table.columns if column not in table.known}
    notes = [
        f"The last line of {table.path} has no line break: if it was cut off, its last field is wrong."
        for table in tables
        if not table.ends
    ]
    if unknown:
        notes.append(f"Columns that are not looked at: {', '.join(unknown)}.")
    return list(known.values()), notes


def of_group(recorded: Iterable[Recorded], group: str | None) -> list[Recorded]:
    """Return the trajectories of a group, or all of them.

    Raises:
        RecordingError: there is no such group.
    """
    everybody = list(recorded)
    if group is None:
        return everybody
    found = [one for one in everybody if one.group == group]
    if not found:
        there = ", ".join(sorted({one.group or "one without a name" for one in everybody}))
        raise RecordingError(f"no trajectory is of group {group}; the groups are: {there}")
    return found


def _add_trajectories(table: Table, known: dict[tuple[str, str], Recorded]) -> None:
    for line, row in table.rows:
        group, name = key = table.key(line, row)
        if key in known:
            raise table.error(line, f"trajectory {name} is there twice")
        known[key] = Recorded(name, group, table.seconds(line, row, SPAN))


def _add_calls(table: Table, known: dict[tuple[str, str], Recorded], *, listed: bool) -> None:
    for line, row in table.rows:
        group, name = key = table.key(line, row)
        if listed and key not in known:
            raise table.error(line, f"no file of trajectories has a trajectory {name}{f' of {group}' if group else ''}")
        duration_s = table.seconds(line, row, DURATION) if row[DURATION] else None
        call = RecordedCall(table.seconds(line, row, START), duration_s, row[TOOL] if table.has_tools else "")
        known.setdefault(key, Recorded(name, group)).calls.append(call)
