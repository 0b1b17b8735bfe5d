"""What the figures were measured on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from dataclasses import dataclass
from pathlib import Path

import arl_tangram


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts that a figure is worth little without.

    Attributes:
        python: implementation and version.
        system: operating system, its release and the architecture.
        processor: its model.
        cores: how many this process may use.
        load_averages: over 1, 5 and 15 minutes, before the measurement.
        packages: versions of what is measured, those that are installed.
    """

    python: str
    system: str
    processor: str
    cores: int
    load_averages: tuple[float, float, float]
    packages: dict[str, str]

    @property
    def is_busy(self) -> bool:
        """Whether others used more than half of a core in the last minute, which a measurement feels."""
        return self.load_averages[0] > 0.5

    def if_busy(self, what: str) -> str:
        """Return a line that says so, and what that makes of the figures, such as "every lag longer"; else nothing."""
        return f"This machine is busy with something else, which makes {what}.\n" if self.is_busy else ""

    @property
    def in_words(self) -> str:
        """The interpreter, the system, the cores and their load, in one line."""
        load = ", ".join(f"{average:.2f}" for average in self.load_averages)
        return f"{self.python} on {self.system}, {self.cores} cores of {self.processor}, load {load}"

    @property
    def versions(self) -> str:
        """The packages with their versions, in one line."""
        return ", ".join(f"{name} {version}" for name, version in self.packages.items())


def read_machine(*measured: str) -> Machine:
    """Look at this machine, this interpreter and the packages that are measured; without any, those of actions."""
    return Machine(
        python=f"{platform.python_implementation()} {platform.python_version()}",
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        processor=_processor(Path("/proc/cpuinfo")),
        cores=len(os.sched_getaffinity(0)),
        load_averages=os.getloadavg(),
        packages={"arl_tangram": arl_tangram.__version__, **_versions(*(measured or ("anyio", "ray")))},
    )


def _processor(cpuinfo: Path) -> str:
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def _versions(*names: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
