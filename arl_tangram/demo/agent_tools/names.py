"""Count the names that a file uses, by its tokens.

Usage: names.py FILE...
"""

from __future__ import annotations

import sys
import tokenize
from collections import Counter
from pathlib import Path


def main(paths: list[str]) -> None:
    """Print the 30 most used names of the files."""
    counts: Counter[str] = Counter()
    for path in paths:
        with Path(path).open("rb") as source:
            counts.update(t.string for t in tokenize.tokenize(source.readline) if t.type == tokenize.NAME)
    for name, count in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:30]:
        print(f"{count:6}  {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
