"""What `typings/` says of VeRL, TRL and their libraries is true of the versions that this session installs."""

from __future__ import annotations

import ast
import importlib
import inspect
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from documents import ROOT

FOLDER = ROOT / "typings"
STUBS = sorted(FOLDER.rglob("*.pyi"))


def _module(stub: Path) -> str:
    parts = stub.relative_to(FOLDER).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _differences(body: list[ast.stmt], real: Any, path: str) -> Iterator[str]:
    """Yield what a stub says that is not so."""
    for statement in body:
        match statement:
            case ast.ClassDef(name=name) if not name.startswith("_"):
                found = getattr(real, name, None)
                if not inspect.isclass(found):
                    yield f"{path}.{name} is no class"
                    continue
                yield from _bases(statement, found, f"{path}.{name}")
                yield from _differences(statement.body, found, f"{path}.{name}")
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if not any(isinstance(one, ast.Name) and one.id == "property" for one in statement.decorator_list):
                    yield from _signature(statement, real, f"{path}.{name}")
            case ast.Assign(targets=[ast.Name(id=name)]) if not name.startswith("_") and inspect.ismodule(real):
                if not hasattr(real, name):
                    yield f"there is no {path}.{name}"


def _bases(stub: ast.ClassDef, real: type, path: str) -> Iterator[str]:
    ancestors = {one.__name__ for one in real.__mro__}
    for base in stub.bases:
        name = ast.unparse(base).split("[")[0].rpartition(".")[2]
        if not name.startswith("_") and name not in ancestors | {"Generic", "Protocol"}:
            yield f"{path} is no {name}"


def _signature(stub: ast.FunctionDef | ast.AsyncFunctionDef, real: Any, path: str) -> Iterator[str]:
    found = getattr(real, stub.name, None)
    if found is None:
        yield f"there is no {path}"
        return
    fields: Any = getattr(real, "model_fields", None)  # of pydantic, whose signature tells nothing
    if stub.name == "__init__" and fields is not None:
        yield from (f"{path} takes no {one.arg}" for one in stub.args.kwonlyargs if one.arg not in fields)
        return
    if isinstance(stub, ast.AsyncFunctionDef) != inspect.iscoroutinefunction(found):
        yield f"{path} is{'' if inspect.iscoroutinefunction(found) else ' no'} coroutine function"
    while hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    # Ray gives every method of a class that becomes an actor one keyword more.
    parameters = [one for one in inspect.signature(found).parameters.values() if one.name != "_ray_trace_ctx"]
    told = stub.args
    positional = [one.arg for one in (*told.posonlyargs, *told.args)]
    actual = [one.name for one in parameters if one.kind in {one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD}]
    if inspect.isclass(real) and inspect.ismethod(found):  # a class method is bound
        actual = [positional[0], *actual]
    if positional != actual:
        yield f"{path} takes {actual}, not {positional}"
    keywords = sorted(one.arg for one in told.kwonlyargs)
    if keywords != sorted(one.name for one in parameters if one.kind is one.KEYWORD_ONLY):
        yield f"{path} has other keywords than {keywords}"
    rest = (told.vararg is not None, told.kwarg is not None)
    if rest != tuple(any(one.kind is kind for one in parameters) for kind in _REST):
        yield f"{path} has * or ** otherwise"


_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@pytest.mark.parametrize("stub", STUBS, ids=map(_module, STUBS))
def test_a_stub_says_what_is_so(stub: Path) -> None:
    name = _module(stub)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs, on import
        real = importlib.import_module(name)
        assert list(_differences(ast.parse(stub.read_text()).body, real, name)) == []


def test_what_is_not_so_is_found() -> None:
    wrong = ast.parse(
        "class JSONDecoder(dict):\n    def decode(self, text): ...\n    def no_method(self): ...\n"
        "async def loads(s, **kwargs): ...\nabsent = 1\ndef dumps(obj, *, indent): ..."
    )
    found = list(_differences(wrong.body, importlib.import_module("json"), "json"))
    assert [difference.split(",")[0] for difference in found] == [
        "json.JSONDecoder is no dict",
        "json.JSONDecoder.decode takes ['self'",
        "there is no json.JSONDecoder.no_method",
        "json.loads is no coroutine function",
        "json.loads has other keywords than []",
        "there is no json.absent",
        "json.dumps has other keywords than ['indent']",
        "json.dumps has * or ** otherwise",
    ]
