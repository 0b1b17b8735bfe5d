"""Print the functions of a source tree with their lines and branches, the most branched first.

Usage: outline.py FOLDER...
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

_BRANCHES = (ast.If, ast.For, ast.While, ast.Try, ast.BoolOp, ast.IfExp)


def functions(source: Path) -> Iterator[tuple[int, int, str]]:
    """Yield (branches, lines, place) for each function of a file."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            branches = sum(isinstance(inner, _BRANCHES) for inner in ast.walk(node))
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            yield branches, lines, f"{source}:{node.lineno} {node.name}"


def main(folders: list[str]) -> None:
    """Print the 40 functions with the most branches."""
    sources = sorted(path for folder in folders for path in Path(folder).glob("*.py"))
    found = sorted((entry for source in sources for entry in functions(source)), reverse=True)
    for branches, lines, place in found[:40]:
        print(f"{branches:5} {lines:5}  {place}")


if __name__ == "__main__":
    main(sys.argv[1:])
