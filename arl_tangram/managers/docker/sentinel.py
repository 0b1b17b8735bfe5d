"""Finds what a session reports about itself in the stream of bytes that its commands write to. Pure.

A report cannot be printed by a command, because it begins with the session's secret; its letters are told in
`arl_tangram.managers.docker.script`. Reports may arrive in pieces, anywhere between output.
"""

from __future__ import annotations

from dataclasses import dataclass

from arl_tangram.managers.docker.script import MARK

_LINES = {b"E": 3}  # of a report; one for all others


@dataclass(frozen=True, slots=True)
class Report:
    """What a session says.

    Attributes:
        kind: one letter.
        words: what follows it on its line.
        times: two more lines, of `E` only.
    """

    kind: str
    words: tuple[str, ...]
    times: tuple[str, ...] = ()


class ReportFinder:
    """Takes one stream of a session apart.

    Args:
        secret: what opened the session.
    """

    def __init__(self, secret: str) -> None:
        self._mark = MARK + secret.encode() + b" "
        self._held = b""

    def feed(self, data: bytes) -> list[bytes | Report]:
        """Take the next bytes; return output and reports in their order. What may begin a report is held back."""
        if self._held:
            data = self._held + data
            self._held = b""
        elif MARK not in data:
            return [data] if data else []
        found: list[bytes | Report] = []
        at = 0
        while (start := data.find(self._mark, at)) >= 0:
            if start > at:
                found.append(data[at:start])
            end = self._end(data, start + len(self._mark))
            if end == 0:
                self._held = data[start:]
                return found
            found.append(_parse(data[start + len(self._mark) : end]))
            at = end
        rest = data[at:]
        cut = self._cut(rest)
        self._held = rest[cut:]
        if cut:
            found.append(rest[:cut])
        return found

    def finish(self) -> bytes:
        """Return what was held back, at the end of the stream."""
        held, self._held = self._held, b""
        return held

    def _end(self, data: bytes, start: int) -> int:
        """Return where a report ends that begins here; 0 if not all of it is there."""
        at = start
        for _ in range(_LINES.get(data[start : start + 1], 1)):
            at = data.find(b"\n", at) + 1
            if at == 0:
                return 0
        return at

    def _cut(self, rest: bytes) -> int:
        """Return where the beginning of a mark may be at the end of this; only its first byte is a `MARK`."""
        start = rest.rfind(MARK, max(0, len(rest) - len(self._mark) + 1))
        return start if start >= 0 and self._mark.startswith(rest[start:]) else len(rest)


def _parse(text: bytes) -> Report:
    first, *others = text.decode("ascii", errors="replace").removesuffix("\n").split("\n")
    words = first.split()
    return Report(words[0] if words else "", tuple(words[1:]), tuple(others))
