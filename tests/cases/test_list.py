"""The page that lists the faults names every test of one, and no others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from documents import ROOT

PAGE = ROOT / "docs" / "explanation" / "faults.md"


def names_of_tests() -> Iterator[str]:
    """Yield the names of all tests of a case."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_case_"):
                yield node.name


def test_the_page_names_every_test_of_a_fault_and_no_others() -> None:
    there_are = list(names_of_tests())
    listed = re.findall(r"`(test_case_\w+)`", PAGE.read_text())
    assert set(there_are) - set(listed) == set(), "not on the page"
    assert set(listed) - set(there_are) == set(), "on the page, and not among the tests"
    assert len(listed) == len(set(listed)), "listed twice"
    assert len(there_are) == len(set(there_are)), "two tests have one name"


def test_each_is_listed_under_its_own_number() -> None:
    sections = re.split(r"^### ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    numbers: list[int] = []
    for section in sections:
        title, _, text = section.partition("\n")
        number = re.search(r"\((\d{2,3})\)$", title)
        assert number is not None, title
        numbers.append(int(number[1]))
        listed = re.findall(r"`test_case_(\d+)_\w+`", text)
        assert listed, f"no test of: {title}"
        assert set(listed) == {number[1]}, title
    assert numbers == sorted(set(numbers))


def test_names_have_numbers_of_two_or_three_digits() -> None:
    assert all(re.match(r"test_case_\d{2,3}_[a-z]", name) for name in names_of_tests())
