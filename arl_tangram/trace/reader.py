"""Read a JSONL trace back, compressed by gzip or not: its header, its events, and how it ended."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import BinaryIO, cast

from arl_tangram.errors import TraceFormatError
from arl_tangram.model.events import Event
from arl_tangram.trace.decode import EventDecoder, read_header
from arl_tangram.trace.fields import parse
from arl_tangram.trace.format import Footer, Header

_LONGEST_LINE = 16 << 20
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a trace ended.

    Attributes:
        footer: what the sink said at its end; None if the run was killed or still goes on.
        truncated: whether the last line is cut off; it is left out.
        unmatched: starts left out because their submission is not in the file (it was dropped).
        events: how many lines of events were read.
        unknown: fields that no version of the format has, which are not looked at.
    """

    footer: Footer | None
    truncated: bool
    unmatched: int
    events: int = 0
    unknown: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every event of the run is there."""
        return self.footer is not None and not (self.footer.dropped or self.footer.lost or self.missing)

    @property
    def missing(self) -> int:
        """How many events the footer counts that are not in the file; negative if the file has more."""
        return 0 if self.footer is None else self.footer.written - self.events

    def told_missing(self) -> str:
        """Say that the file is not as it was written, of one of which events are missing."""
        written = 0 if self.footer is None else self.footer.written
        return (
            f"The last line counts {written:,} events and the file has {self.events:,}: lines were taken out or put in."
        )


@dataclass(frozen=True, slots=True)
class Trace:
    """A whole trace in memory."""

    header: Header
    events: tuple[Event, ...]
    ending: Ending


def read_trace(path: str | PathLike[str]) -> Trace:
    """Read a whole trace; `open_trace` reads one event at a time.

    A last line that was cut off, as a killed run leaves it, is left out and reported in `ending`.

    Raises:
        TraceFormatError: the file is no trace, or one of a newer version, or a line is damaged.
        OSError: the file cannot be read.
    """
    with open_trace(path) as reader:
        events = tuple(reader.events())
        return Trace(reader.header, events, reader.ending)


@contextmanager
def open_trace(path: str | PathLike[str]) -> Generator[TraceReader]:
    """Open a trace to read it event by event, in memory that does not grow with the file.

    Raises:
        TraceFormatError: the file is no trace, or one of a newer version.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        packed = file.peek(len(_GZIP)).startswith(_GZIP)
        yield TraceReader(cast(BinaryIO, gzip.GzipFile(fileobj=file)) if packed else file, str(path))


class TraceReader:
    """Reads one trace from the front.

    Args:
        file: positioned at the first line.
        name: what error messages call it.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self._line = 0
        self._footer: Footer | None = None
        self._truncated = False
        self._unmatched = 0
        self._events = 0
        self._unknown: dict[str, None] = {}
        first = self._next_line()
        try:
            self.header = read_header(parse(first))
        except TraceFormatError as error:
            raise self.error(error) from None

    @property
    def ending(self) -> Ending:
        """How the trace ended, as far as it has been read."""
        return Ending(self._footer, self._truncated, self._unmatched, self._events, tuple(self._unknown))

    def events(self) -> Iterator[Event]:
        """Read the events in the order in which they happened.

        Raises:
            TraceFormatError: a line other than a cut-off last one is damaged; the message names it.
        """
        decoder = EventDecoder(self.header.topology, self.header.version)
        self._unknown = decoder.unknown
        while line := self._next_line():
            try:
                if self._footer is not None:
                    raise TraceFormatError("a line after the footer")
                record = decoder.record(parse(line))
            except TraceFormatError as error:
                if line.endswith(b"\n") or len(line) >= _LONGEST_LINE:
                    raise self.error(error) from None
                self._truncated = True
                return
            if isinstance(record, Footer):
                self._footer = record
                continue
            self._events += 1
            if record is None:
                self._unmatched += 1
            else:
                yield record

    def _next_line(self) -> bytes:
        self._line += 1
        try:
            return self._file.readline(_LONGEST_LINE)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise self.error(f"the file begins like a gzip file and cannot be decompressed: {error}") from None

    def error(self, said: object) -> TraceFormatError:
        """Return the error about the line that was read last."""
        return TraceFormatError(f"{self._name}: line {self._line}: {said}")
