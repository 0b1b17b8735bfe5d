"""Tables of a recording, read from files of comma-separated values or JSON lines, compressed by gzip or not.

Each row is what a file says, as text, with its line; what cannot be read without a guess is refused.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from arl_tangram.errors import TangramError
from arl_tangram.trace.tally import LONGEST_S

TRAJECTORY, GROUP, TOOL = "traj", "group", "tool"
START, DURATION, SPAN = "start_s", "dur_s", "span_s"
CALL_COLUMNS = (TRAJECTORY, START, DURATION)
TRAJECTORY_COLUMNS = (TRAJECTORY, SPAN)

_OF_CALLS = frozenset((*CALL_COLUMNS, GROUP, TOOL))
_OF_TRAJECTORIES = frozenset((*TRAJECTORY_COLUMNS, GROUP))
_GZIP = b"\x1f\x8b"
_MOST_SHOWN = 80


class RecordingError(TangramError, ValueError):
    """A file cannot be read as recorded trajectories; the message names the file and the line."""


class Table:
    """The rows of a file, each with the line where it ends.

    Attributes:
        path: of the file.
        columns: in their order.
        rows: what stands in each column.
        ends: whether the last line has its line break.
        has_tools: whether there is a column of tools.
        is_of_trajectories: whether its rows are trajectories; else they are calls.
        known: the columns that are looked at.
    """

    def __init__(
        self, path: Path, columns: Sequence[str], rows: Sequence[tuple[int, Mapping[str, str]]], *, ends: bool = True
    ) -> None:
        self.path = path
        self.ends = ends
        self.columns = columns
        self.rows = rows
        self.has_tools = TOOL in columns
        self.is_of_trajectories = not set(CALL_COLUMNS) <= set(columns)
        self.known = _OF_TRAJECTORIES if self.is_of_trajectories else _OF_CALLS

    @staticmethod
    def read(path: Path) -> list[Table]:
        """Read a file of either kind; one of JSON lines may be of both."""
        text = _text(path)
        if not text.strip():
            raise RecordingError(f"{path} is empty")
        if text.lstrip().startswith(("{", "[")):
            return _tables_of_json(path, text)
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
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
        return [Table(path, columns, rows, ends=text.endswith(("\n", "\r")))]

    def error(self, line: int, said: str) -> RecordingError:
        """Return the error about a row."""
        return RecordingError(f"{self.path}, line {line}: {said}")

    def key(self, line: int, row: Mapping[str, str]) -> tuple[str, str]:
        """Return the group and the name of the trajectory that a row is about."""
        if not row[TRAJECTORY]:
            raise self.error(line, f"{TRAJECTORY} is empty")
        return row.get(GROUP, ""), row[TRAJECTORY]

    def seconds(self, line: int, row: Mapping[str, str], column: str) -> float:
        """Return what a column says, from 0."""
        written = row[column]
        try:
            value = float(written.replace("_", "x"))  # that float() takes underscores is for programs
        except ValueError:
            raise self.error(line, f"{column} is {_shown(written)!r}, which is no number") from None
        if not 0 <= value < math.inf:
            raise self.error(line, f"{column} is {_shown(written)}; seconds are finite and not negative")
        if value >= LONGEST_S:
            raise self.error(line, f"{column} is {_shown(written)}; seconds are below {LONGEST_S:g}")
        return value


def require_file(path: Path) -> None:
    """Refuse what is there and is no file: a pipe would be emptied by whoever reads it first.

    Raises:
        RecordingError: it is a pipe, or another device.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise RecordingError(f"{path} is no file; what comes from a pipe must be written to one")


def _text(path: Path) -> str:
    """Return the text of a file."""
    require_file(path)
    content = path.read_bytes()
    try:
        if content.startswith(_GZIP):
            content = gzip.decompress(content)
        return content.decode("utf-8-sig")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise RecordingError(f"{path} begins like a gzip file and cannot be decompressed: {error}") from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise RecordingError(f"{path}, line {line}: this is not text in UTF-8: {error.reason}") from None


def _tables_of_json(path: Path, text: str) -> list[Table]:
    """Return the calls and the trajectories of a file of JSON lines."""
    found: dict[bool, list[tuple[int, dict[str, str]]]] = {}
    for line, written in enumerate(text.split("\n"), 1):
        if written.strip():
            row = _row_of_json(path, line, written)
            is_call = DURATION in row or (START in row and SPAN not in row)
            needed = CALL_COLUMNS if is_call else TRAJECTORY_COLUMNS
            if missing := [column for column in needed if column != DURATION and column not in row]:
                raise RecordingError(
                    f"{path}, line {line}: {and_(needed)} belong together; there is no {and_(missing)}"
                )
            found.setdefault(is_call, []).append((line, row))
    tables: list[Table] = []
    for is_call, rows in found.items():
        columns = list(dict.fromkeys(column for _, row in rows for column in row))
        if is_call:
            columns = list(dict.fromkeys((*columns, DURATION)))
        empty = dict.fromkeys(columns, "")
        tables.append(Table(path, columns, [(line, empty | row) for line, row in rows]))
    return tables


def _row_of_json(path: Path, line: int, written: str) -> dict[str, str]:
    """Return the fields of a line as a file of comma-separated values has them."""
    try:
        found: object = json.loads(written, object_pairs_hook=_fields)
    except (ValueError, RecursionError) as error:
        raise RecordingError(f"{path}, line {line}: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise RecordingError(f"{path}, line {line}: it is no object")
    row: dict[str, str] = {}
    for column, value in cast("dict[str, object]", found).items():
        if column not in _OF_CALLS | _OF_TRAJECTORIES:
            row[column] = ""
        elif isinstance(value, bool) or not isinstance(value, str | int | float | None):
            raise RecordingError(
                f"{path}, line {line}: {column} takes a number or a text, not {_shown(json.dumps(value))}"
            )
        elif column == TRAJECTORY and isinstance(value, float) and value.is_integer():
            row[column] = str(int(value))  # some programs write all numbers as fractions
        else:
            row[column] = "" if value is None else str(value)
    return row


def _check_columns(path: Path, columns: Sequence[str]) -> None:
    if not columns:
        raise RecordingError(f"{path}, line 1: it is empty, and should name the columns")
    if twice := [column for number, column in enumerate(columns) if column in columns[:number]]:
        raise RecordingError(f"{path}, line 1: the column {_shown(twice[0])!r} is there twice")
    if any(set(wanted) <= set(columns) for wanted in (CALL_COLUMNS, TRAJECTORY_COLUMNS)):
        return
    raise RecordingError(
        f"{path}, line 1: calls have the columns {and_(CALL_COLUMNS)}, trajectories {and_(TRAJECTORY_COLUMNS)}; "
        f"this file has {_shown(', '.join(columns))}"
    )


def _fields(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """Return an object of JSON, each of whose fields is there once."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"a field is there twice: {_shown(next(name for name in names if names.count(name) > 1))}")
    return found


def _shown(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 3] + "..."


def and_(names: Sequence[str]) -> str:
    """Return names as words list them."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
