"""Draw the figures of a command into a file: lines and bars, beside each other. Needs the extra `plot`.

What is to be drawn are values; no window is opened. What is matplotlib's is `Any` here, as its own types leave the
keyword arguments of nearly all its functions unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arl_tangram.errors import ConfigurationError, MissingExtraError

SUFFIXES = (".png", ".svg", ".pdf")
_PANEL_IN = (5.2, 3.9)
_A_ROW = 3
_DOTS_PER_IN = 150
_NARROW = 8


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart.

    Attributes:
        name: for the legend; empty to have none.
        xs: where, ascending.
        ys: what is there; as many.
        spread: the least and the most of what was found at each place, drawn as a band; empty without one.
    """

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    spread: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over an axis of numbers.

    Attributes:
        title: what stands above.
        x: what the horizontal axis counts, with its unit.
        y: what the vertical axis counts, with its unit.
        lines: at least one.
        levels: horizontal marks, each with its name.
        marks: vertical marks, each with its name.
        log_x: whether equal ratios are equal distances on the horizontal axis.
        log_y: the same of the vertical axis.
    """

    title: str
    x: str
    y: str
    lines: Sequence[Line]
    levels: Sequence[tuple[str, float]] = ()
    marks: Sequence[tuple[str, float]] = ()
    log_x: bool = False
    log_y: bool = False

    def draw(self, axes: Any) -> None:
        """Draw it on the axes of matplotlib."""
        for place, line in enumerate(self.lines):
            axes.plot(line.xs, line.ys, marker=".", label=line.name or None, color=f"C{place}")
            if line.spread:
                least, most = zip(*line.spread, strict=True)
                axes.fill_between(line.xs, least, most, color=f"C{place}", alpha=0.2, linewidth=0)
        for name, at in self.levels:
            axes.axhline(at, color="0.4", linestyle="--", linewidth=1, label=name)
        for name, at in self.marks:
            axes.axvline(at, color="0.4", linestyle=":", linewidth=1.5, label=name)
        if self.log_x:
            _by_ratio(axes, "x")
        if self.log_y:
            _by_ratio(axes, "y")
        else:
            axes.set_ylim(bottom=0)
        axes.set(title=self.title, xlabel=self.x, ylabel=self.y)


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars in groups: what several contenders come to in several cases.

    Attributes:
        title: what stands above.
        y: what the vertical axis counts, with its unit.
        groups: what stands below each group of bars.
        heights: for each contender, by its name, one value for each group.
        log_y: whether equal ratios are equal distances on the vertical axis.
    """

    title: str
    y: str
    groups: Sequence[str]
    heights: Sequence[tuple[str, Sequence[float]]]
    log_y: bool = False

    def draw(self, axes: Any) -> None:
        """Draw it on the axes of matplotlib."""
        width = 0.8 / max(1, len(self.heights))
        for place, (name, values) in enumerate(self.heights):
            shift = (place - (len(self.heights) - 1) / 2) * width
            axes.bar([at + shift for at in range(len(self.groups))], values, width, label=name)
        axes.set_xticks(range(len(self.groups)), self.groups)
        if self.log_y:
            _by_ratio(axes, "y")
        axes.set(title=self.title, ylabel=self.y)


def check(path: Path) -> None:
    """Check, before anything is computed, that plots can be written to a file.

    Raises:
        ConfigurationError: its suffix is none of `SUFFIXES`, or its folder does not exist.
        MissingExtraError: matplotlib is not installed.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigurationError(f"plots are written as {', '.join(SUFFIXES)}, which the name says; not {path}")
    if not path.parent.is_dir():
        raise ConfigurationError(f"plots cannot be written to {path}: there is no folder {path.parent}")
    _figure_class()


def save(path: Path, panels: Sequence[Chart | Bars]) -> None:
    """Draw panels beside each other, three in a row, and write them in the format that the suffix names.

    Raises:
        ConfigurationError: as `check` does.
        MissingExtraError: matplotlib is not installed.
        OSError: the file cannot be written.
    """
    check(path)
    columns = max(1, min(_A_ROW, len(panels)))
    rows = -(-len(panels) // columns)
    figure = _figure_class()(figsize=(_PANEL_IN[0] * columns, _PANEL_IN[1] * max(1, rows)), layout="constrained")
    for place, panel in enumerate(panels):
        axes = figure.add_subplot(rows, columns, place + 1)
        panel.draw(axes)
        axes.grid(axis="y", alpha=0.3)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(fontsize="small")
    figure.savefig(path, dpi=_DOTS_PER_IN)


def _by_ratio(axes: Any, name: str) -> None:
    """Let equal ratios be equal distances, with numbers in full; those between powers of ten only where it has room."""
    axes.set(**{f"{name}scale": "log"})
    axis = getattr(axes, f"{name}axis")
    least, most = axis.get_view_interval()
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("{x:g}" if most < _NARROW * least else "")


def _figure_class() -> Any:
    """Return matplotlib's `Figure`, which draws without a window and keeps no state of its own."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtraError(
            "plots need matplotlib, which is not installed: pip install 'arl-tangram[plot]'"
        ) from error
    return Figure
