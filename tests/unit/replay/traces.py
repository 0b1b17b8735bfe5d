"""Traces written line by line: what a test does not say is as it usually is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CPU = {"name": "cpu", "capacity": 4000, "scale": 1000, "window_s": None}
MEMORY = {"name": "memory", "capacity": 8 << 30, "scale": 1 << 30, "window_s": None}
THREADS = {"name": "threads", "capacity": 8, "scale": 1, "window_s": None}


class Trace:
    """The lines of a trace.

    Args:
        policy: under which it is recorded.
        dimensions: further ones, beside cores, memory and threads.
        version: of the format.
    """

    def __init__(self, policy: str = "elastic", dimensions: tuple[dict[str, Any], ...] = (), version: int = 3) -> None:
        header = {
            "format": "arl-tangram-trace",
            "version": version,
            "library": "0.1.0",
            "policy": policy,
            "clock": "seconds",
            "created_unix_s": 0.0,
            "dimensions": [CPU, MEMORY, THREADS, *dimensions],
        }
        self.lines: list[dict[str, Any]] = [header]
        self.ending: str | None = '{"type":"footer","written":%d,"dropped":0,"lost":0}\n'

    def line(self, type_: str, at_s: float, **fields: Any) -> None:
        """Add any line."""
        self.lines.append({"type": type_, "at_s": at_s, **fields})

    def opened(self, id_: int, at_s: float, waited_s: float = 0.0, **held: int) -> None:
        reserved = held.get("cpu", 0)
        self.line("opened", at_s, id=id_, group=None, waited_s=waited_s, reserved=reserved, held=held)

    def closed(self, id_: int, at_s: float) -> None:
        self.line("closed", at_s, id=id_)

    def submitted(self, id_: int, at_s: float, trajectory: int | None = None, **fields: Any) -> None:
        elastic = {"elastic": "cpu", "options": [1000], "relative": [1.0]}
        usual = {
            "id": id_,
            "submitted_at_s": at_s,
            "name": "tool",
            "key": "",
            "trajectory": trajectory,
            "turn": trajectory is not None,
            "parent": None,
            "since_s": None,
            "priority": 0,
            "queue_timeout_s": None,
            "duration_s": None,
            "fixed": {},
            "speedup": None,
            "reserved": 0,
            "learns": False,
        }
        self.line("submitted", at_s, **{**usual, **elastic, **fields})

    def started(self, id_: int, at_s: float, units: int = 1000, **fields: Any) -> None:
        usual = {"id": id_, "started_at_s": at_s, "units": units, "cores": units / 1000, "grant": {}, "expected_s": 1.0}
        self.line("started", at_s, **{**usual, **fields})

    def ended(self, id_: int, at_s: float, execution_s: float, **fields: Any) -> None:
        """The units return, too; queueing is what is left of the time."""
        (since_s,) = [line["at_s"] for line in self.lines if (line.get("type"), line.get("id")) == ("submitted", id_)][
            -1:
        ]
        overhead_s = fields.get("overhead_s", 0.0)
        queueing_s = at_s - since_s - execution_s - overhead_s - fields.get("suspended_s", 0.0)
        usual = {
            "id": id_,
            "submitted_at_s": since_s,
            "name": "tool",
            "key": "",
            "trajectory": None,
            "outcome": "ok",
            "error": None,
            "queueing_s": queueing_s,
            "execution_s": execution_s,
            "overhead_s": 0.0,
            "cpu_s": 0.0,
            "cores": 1.0,
        }
        self.line("returned", at_s, id=id_)
        self.line("ended", at_s, **{**usual, **fields})

    def ran(
        self, id_: int, submitted_at_s: float, ended_at_s: float, trajectory: int | None = None, **fields: Any
    ) -> None:
        """A call that starts at once on one core."""
        self.submitted(id_, submitted_at_s, trajectory, **fields)
        self.started(id_, submitted_at_s, reserved_or_one(fields))
        self.ended(id_, ended_at_s, ended_at_s - submitted_at_s, trajectory=trajectory)

    def text(self) -> str:
        return "".join(json.dumps(line) + "\n" for line in self.lines) + self.footer()

    def footer(self) -> str:
        """The last line, which counts the events; nothing if there is none."""
        return "" if self.ending is None else self.ending.replace("%d", str(len(self.lines) - 1))

    def write(self, folder: Path) -> Path:
        """Write it to a file of that folder."""
        file = folder / "run.jsonl"
        file.write_text(self.text())
        return file


def reserved_or_one(fields: dict[str, Any]) -> int:
    return int(fields.get("reserved", 0)) or 1000
