"""Plots: files of each format hold what was drawn, and what cannot be drawn is refused before it is computed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from arl_tangram.errors import ConfigurationError, MissingExtraError
from arl_tangram.plots import SUFFIXES, Bars, Chart, Line, check, save

CHART = Chart(
    "Cores",
    "cores",
    "mean ACT, s",
    [
        Line("elastic", [1, 2, 4], [4.0, 2.0, 1.0], spread=[(3, 5), (1, 3), (1, 1)]),
        Line("reserved", [2, 4], [3.0, 2.0]),
    ],
    levels=[("asked for", 1.1)],
    marks=[("enough", 4)],
    log_x=True,
)
BARS = Bars("Needed", "cores", ["cpu", "memory"], [("elastic", [4, 2]), ("reserved(1)", [8, 2])])
BEGINS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_of_the_format_that_its_name_says(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"plot{suffix}"
    save(file, [CHART, BARS])
    assert file.read_bytes().startswith(BEGINS[suffix])


def test_names_and_panels_are_in_the_picture(tmp_path: Path) -> None:
    """Text is drawn as shapes, each behind a comment with its words."""
    file = tmp_path / "plot.svg"
    save(file, [CHART, BARS, CHART, BARS])
    text = file.read_text()
    for words in ("elastic", "reserved(1)", "asked for", "enough", "mean ACT, s", "Needed", "memory"):
        assert f"<!-- {words} -->" in text
    assert [f'id="axes_{number}"' in text for number in (1, 4, 5)] == [True, True, False]


def test_other_formats_and_missing_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"written as \.png, \.svg, \.pdf, .* not .*plot\.txt"):
        check(tmp_path / "plot.txt")
    with pytest.raises(ConfigurationError, match=r"there is no folder .*missing"):
        save(tmp_path / "missing" / "plot.png", [CHART])


def test_without_the_library_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'arl-tangram\[plot\]'"):
        check(tmp_path / "plot.png")
