"""Let `numpy.polynomial` come from the workspace, so that what the agent edited is what its tests test.

Imported before numpy (`import workspace_numpy`, or `pytest -p workspace_numpy`).
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_EDITED = Path(__file__).resolve().parent.parent / "polynomial"


class WorkspaceFinder(importlib.abc.MetaPathFinder):
    """Find the edited package in the workspace; everything else is left to the other finders."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the spec of the workspace's package for `numpy.polynomial`, else None."""
        if fullname != "numpy.polynomial":
            return None
        return importlib.util.spec_from_file_location(
            fullname, _EDITED / "__init__.py", submodule_search_locations=[str(_EDITED)]
        )


sys.meta_path.insert(0, WorkspaceFinder())
