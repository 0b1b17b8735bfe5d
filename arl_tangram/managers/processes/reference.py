"""Name a body so that a worker finds it: module, qualified name, and how many decorators are to be taken off."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from arl_tangram.errors import DefinitionError

MAIN = "__main__"


class BodyReference(NamedTuple):
    """Where a body is found.

    Attributes:
        module: where it is defined.
        qualname: its name there, with dots.
        depth: how often to follow `__wrapped__` from what has that name.
    """

    module: str
    qualname: str
    depth: int


def refer(name: str, body: Callable[..., Any]) -> BodyReference:
    """Return the reference of a body, checked to lead back to it.

    Raises:
        DefinitionError: a worker would not find it, or would find something else.
    """
    module, qualname = body.__module__, body.__qualname__
    if module == MAIN and not main_is_a_file():
        raise DefinitionError(
            f"{name} is defined interactively, and a worker process finds a body by its name; "
            "put it into a module and import it from there"
        )
    try:
        layers = list(_layers(module, qualname))
    except (ImportError, AttributeError) as error:
        raise DefinitionError(f"{name} is not found by its name, as a worker process would: {error}") from None
    for depth, layer in enumerate(layers):
        if layer is body:
            return BodyReference(module, qualname, depth)
    raise DefinitionError(f"{name}: its name now means {layers[0]!r}, which a worker would run instead")


def resolve(reference: BodyReference) -> Callable[..., Any]:
    """Return the body; imports its module.

    Raises:
        Exception: whatever importing it raises.
    """
    for depth, layer in enumerate(_layers(reference.module, reference.qualname)):
        if depth == reference.depth:
            return layer  # type: ignore[no-any-return]
    raise AttributeError(f"{reference.module}:{reference.qualname} is another function here than in the trainer")


def main_is_a_file() -> bool:
    """Whether a worker can import what `__main__` is: a module or a script, not a prompt or a notebook."""
    main = sys.modules[MAIN]
    if getattr(main, "__spec__", None) is not None:
        return True
    return os.path.isfile(str(getattr(main, "__file__", None) or ""))


def _layers(module: str, qualname: str) -> Iterator[Any]:
    """Yield what has this name, then what that wraps, and so on."""
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    seen: set[int] = set()
    while id(found) not in seen:
        seen.add(id(found))
        yield found
        found = getattr(found, "__wrapped__", found)
