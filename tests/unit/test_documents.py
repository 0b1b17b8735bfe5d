"""The reader of pages finds every block, and refuses what it would otherwise leave out in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from documents import Block, DocumentError, blocks, script

PAGE = """# Title

```python
a = 1
```

=== "tab"

    ```python title="second"
    assert a == 1
    ```

<!-- not run: needs a GPU -->
```python
import torch
```

```bash
ls
```
"""


def _write(folder: Path, text: str) -> Path:
    page = folder / "page.md"
    page.write_text(text)
    return page


def test_blocks_are_found_with_their_place_and_their_marker(tmp_path: Path) -> None:
    page = _write(tmp_path, PAGE)
    assert blocks(page) == [
        Block(page, 4, "python", "a = 1\n", None),
        Block(page, 10, "python", "assert a == 1\n", None),
        Block(page, 15, "python", "import torch\n", "needs a GPU"),
        Block(page, 19, "bash", "ls\n", None),
    ]


def test_the_program_of_a_page_keeps_line_numbers(tmp_path: Path) -> None:
    lines = script(_write(tmp_path, PAGE)).splitlines()
    assert (lines[3], lines[9]) == ("a = 1", "assert a == 1")
    assert "torch" not in "".join(lines)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("```py\n1\n```\n", "a block of 'py'"),
        ("```\n1\n```\n", "a block of ''"),
        ("```python\n1\n", "has no end"),
        ("<!-- not run -->\n```python\n1\n```\n", "say why"),
        ("<!-- not run: later -->\n\n```python\n1\n```\n", "line above a block"),
    ],
    ids=["alias", "no language", "no end", "no reason", "apart"],
)
def test_what_would_escape_is_refused(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=words):
        blocks(_write(tmp_path, text))
