"""The page on workloads tells each parameter, with the value that it has."""

from __future__ import annotations

import ast
import math
import re
from dataclasses import fields
from pathlib import Path

import pytest

from arl_tangram.simulate.workloads import CODING_BATCH, Coding, DeepSearch, Mopd, Testbed

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "workloads.md"
_TABLE = re.compile(r"<!-- parameters: (?P<names>.*?) -->\n\n(?P<rows>(\|.*\n)+)")
_SOURCES = re.compile(r"the paper|recorded|evaluations|suites|APIs|requests|report|model card|measured|assumed|yours")


def tables() -> dict[str, list[list[str]]]:
    return {
        found["names"]: [[cell.strip() for cell in row.strip("|").split("|")] for row in found["rows"].splitlines()[2:]]
        for found in _TABLE.finditer(PAGE.read_text())
    }


def value_of(cell: str) -> object:
    return math.inf if cell == "inf" else ast.literal_eval(cell)


@pytest.mark.parametrize(
    ("names", "parameters"),
    [
        ("Coding, CODING_BATCH", (Coding(), CODING_BATCH)),
        ("DeepSearch", (DeepSearch(),)),
        ("Mopd", (Mopd(),)),
        ("Testbed", (Testbed(),)),
    ],
)
def test_each_parameter_is_told_with_its_source_and_value(names: str, parameters: tuple[object, ...]) -> None:
    rows = tables()[names]
    assert [row[0].strip("`") for row in rows] == [field.name for field in fields(parameters[0])]  # type: ignore[arg-type]
    for name, what, source, *values in rows:
        assert what
        assert _SOURCES.match(source), f"{name}: {source}"
        assert [value_of(value) for value in values] == [getattr(of, name.strip("`")) for of in parameters]


@pytest.mark.parametrize("described", [Coding, DeepSearch, Mopd, Testbed])
def test_each_parameter_has_a_line_in_the_docstring(described: type) -> None:
    text = described.__doc__ or ""
    for field in fields(described):
        assert re.search(rf"^\s+{field.name}: \S", text, re.MULTILINE), field.name
