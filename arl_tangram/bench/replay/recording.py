"""Recorded trajectories, read from files of comma-separated values: what each called, when, and for how long.

Two kinds of files, told apart by their columns. A file of calls has `traj`, `start_s` (from the beginning of the
trajectory) and `dur_s`; a file of trajectories has `traj` and `span_s` (how long the whole of it took). Both may have
`group`, and calls may have `tool`; other columns are not looked at. Files that are compressed by
gzip are read as they are.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

TRAJECTORY, GROUP, TOOL = "traj", "group", "tool"
START, DURATION, SPAN = "start_s", "dur_s", "span_s"
CALL_COLUMNS = (TRAJECTORY, START, DURATION)
TRAJECTORY_COLUMNS = (TRAJECTORY, SPAN)

_GZIP = b"\x1f\x8b"


class RecordingError(ValueError):
    """A file cannot be read as recorded trajectories; the message names the file and the line."""


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
    tables = [_Table.read(path) for path in paths]
    known: dict[tuple[str, str], Recorded] = {}
    for table in tables:
        if table.is_of_trajectories:
            _add_trajectories(table, known)
    listed = bool(known)
    calls = [table for table in tables if not table.is_of_trajectories]
    if not calls:
        raise RecordingError(f"no file of calls among {', '.join(map(str, paths))}: none has {_and(CALL_COLUMNS)}")
    for table in calls:
        _add_calls(table, known, listed=listed)
    return list(known.values())


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


class _Table:
    """The rows of a file, each with the line where it ends."""

    def __init__(self, path: Path, columns: Sequence[str], rows: Sequence[tuple[int, Mapping[str, str]]]) -> None:
        self._path = path
        self.rows = rows
        self.has_tools = TOOL in columns
        self.is_of_trajectories = START not in columns

    @staticmethod
    def read(path: Path) -> _Table:
        """Read a file of either kind."""
        reader = csv.DictReader(_lines(path), strict=True)
        try:
            columns = list(reader.fieldnames or ())
            rows = [(reader.line_num, row) for row in reader]
        except csv.Error as error:
            raise RecordingError(
                f"{path}, line {reader.reader.line_num}: this is not comma-separated: {error}"
            ) from None
        _check_columns(path, columns)
        if not rows:
            raise RecordingError(f"{path} has columns and no rows")
        for line, row in rows:
            if None in row or None in row.values():
                raise RecordingError(f"{path}, line {line}: it does not have the {len(columns)} fields of line 1")
        return _Table(path, columns, rows)

    def error(self, line: int, said: str) -> RecordingError:
        """Return the error about a row."""
        return RecordingError(f"{self._path}, line {line}: {said}")

    def key(self, line: int, row: Mapping[str, str]) -> tuple[str, str]:
        """Return the group and the name of the trajectory that a row is about."""
        if not row[TRAJECTORY]:
            raise self.error(line, f"{TRAJECTORY} is empty")
        return row.get(GROUP, ""), row[TRAJECTORY]

    def seconds(self, line: int, row: Mapping[str, str], column: str) -> float:
        """Return what a column says, from 0."""
        try:
            value = float(row[column])
        except ValueError:
            raise self.error(line, f"{column} is {row[column]!r}, which is no number") from None
        if not 0 <= value < math.inf:
            raise self.error(line, f"{column} is {row[column]}; seconds are finite and not negative")
        return value


def _lines(path: Path) -> Iterator[str]:
    """Return the text of a file, line by line."""
    content = path.read_bytes()
    try:
        if content.startswith(_GZIP):
            content = gzip.decompress(content)
        text = content.decode("utf-8-sig")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise RecordingError(f"{path} begins like a gzip file and cannot be decompressed: {error}") from None
    except UnicodeDecodeError as error:
        raise RecordingError(f"{path} is not text in UTF-8: {error}") from None
    return io.StringIO(text, newline="")


def _check_columns(path: Path, columns: Sequence[str]) -> None:
    if not columns:
        raise RecordingError(f"{path} is empty")
    if any(set(wanted) <= set(columns) for wanted in (CALL_COLUMNS, TRAJECTORY_COLUMNS)):
        return
    raise RecordingError(
        f"{path}, line 1: calls have the columns {_and(CALL_COLUMNS)}, trajectories {_and(TRAJECTORY_COLUMNS)}; "
        f"this file has {', '.join(columns)}"
    )


def _add_trajectories(table: _Table, known: dict[tuple[str, str], Recorded]) -> None:
    for line, row in table.rows:
        group, name = key = table.key(line, row)
        if key in known:
            raise table.error(line, f"trajectory {name} is there twice")
        known[key] = Recorded(name, group, table.seconds(line, row, SPAN))


def _add_calls(table: _Table, known: dict[tuple[str, str], Recorded], *, listed: bool) -> None:
    for line, row in table.rows:
        group, name = key = table.key(line, row)
        if listed and key not in known:
            raise table.error(line, f"no file of trajectories has a trajectory {name}{f' of {group}' if group else ''}")
        duration_s = table.seconds(line, row, DURATION) if row[DURATION] else None
        call = RecordedCall(table.seconds(line, row, START), duration_s, row[TOOL] if table.has_tools else "")
        known.setdefault(key, Recorded(name, group)).calls.append(call)


def _and(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
