"""The reference is true: its names, parameters, defaults, errors and command line options are those of the code."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import arl_tangram
from arl_tangram import errors
from arl_tangram.__main__ import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference.md").read_text()
HEADINGS = re.findall(r"^### (\S+)$", PAGE, re.MULTILINE)
BLOCKS = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SIGNATURES = [block.strip() for block in BLOCKS if not block.startswith("TangramError")]
(TREE,) = [block for block in BLOCKS if block.startswith("TangramError")]
COMMANDS = {
    "demo": ["demo"],
    "doctor": ["doctor"],
    "report TRACE": ["report"],
    "replay FILE...": ["replay"],
    "plan FILE...": ["plan"],
    "simulate coding": ["simulate", "coding"],
    "simulate deepsearch": ["simulate", "deepsearch"],
    "simulate mopd": ["simulate", "mopd"],
    "simulate paper": ["simulate", "paper"],
    "bench overhead": ["bench", "overhead"],
    "bench schedule": ["bench", "schedule"],
    "bench orders": ["bench", "orders"],
    "bench replay FILE...": ["bench", "replay"],
    "bench plan": ["bench", "plan"],
    "bench aoe": ["bench", "aoe"],
    "bench evict": ["bench", "evict"],
    "bench swap": ["bench", "swap"],
    "bench gpu": ["bench", "gpu"],
    "bench resize": ["bench", "resize"],
    "bench faults": ["bench", "faults"],
    "bench ray": ["bench", "ray"],
}


def resolve(dotted: str) -> object:
    """Return what a name on the page stands for."""
    found: object = arl_tangram
    path = dotted.split(".")
    if path[0] in {"testing", "integrations"}:  # `arl_tangram` does not import them
        modules = 1 if path[0] == "testing" else 2
        found = importlib.import_module(".".join(["arl_tangram", *path[:modules]]))
        path = path[modules:]
    for part in path:
        found = getattr(found, part)
    return found


def bare(shown: str) -> str:
    """Return a signature without the words that say how it is called."""
    return shown.removeprefix("await ").removeprefix("async with ")


def parameters(text: str) -> tuple[str, list[tuple[str, object, object]]]:
    """Return the name and (parameter, kind, default) of a signature as the page shows it."""
    name, _, rest = text.partition("(")
    (function,) = ast.parse(f"def f({rest}: ...").body
    assert isinstance(function, ast.FunctionDef)
    args = function.args
    kinds = inspect.Parameter
    found: list[tuple[str, object, object]] = []
    plain = [(a, kinds.POSITIONAL_ONLY) for a in args.posonlyargs] + [
        (a, kinds.POSITIONAL_OR_KEYWORD) for a in args.args
    ]
    defaults = [kinds.empty] * (len(plain) - len(args.defaults)) + [ast.literal_eval(d) for d in args.defaults]
    found += [(a.arg, kind, default) for (a, kind), default in zip(plain, defaults, strict=True)]
    if args.vararg is not None:
        found.append((args.vararg.arg, kinds.VAR_POSITIONAL, kinds.empty))
    for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        found.append((arg.arg, kinds.KEYWORD_ONLY, kinds.empty if default is None else ast.literal_eval(default)))
    if args.kwarg is not None:
        found.append((args.kwarg.arg, kinds.VAR_KEYWORD, kinds.empty))
    return name, found


@pytest.mark.parametrize("shown", SIGNATURES, ids=lambda shown: shown.partition("(")[0])
def test_a_signature_is_that_of_the_code(shown: str) -> None:
    name, documented = parameters(bare(shown))
    target = resolve(name)
    assert callable(target)
    actual = [p for p in inspect.signature(target).parameters.values() if p.name != "self"]
    assert [(p.name, p.kind) for p in actual] == [(parameter, kind) for parameter, kind, _ in documented]
    for parameter, (_, _, default) in zip(actual, documented, strict=True):
        if default is not ...:
            assert parameter.default == default, parameter.name
    assert inspect.iscoroutinefunction(target) == shown.startswith("await ")


def test_every_public_name_is_in_the_reference() -> None:
    listed = {heading for heading in HEADINGS if "." not in heading} | set(re.findall(r"^\W*(\w+)", TREE, re.MULTILINE))
    assert set(arl_tangram.__all__) == listed - {"TraceFormatError"}


def test_every_public_name_for_adapters_is_in_the_reference() -> None:
    listed = {found[1] for heading in HEADINGS if (found := re.match(r"integrations\.rollouts\.(\w+)", heading))}
    assert set(importlib.import_module("arl_tangram.integrations.rollouts").__all__) == listed


def test_every_heading_with_parameters_shows_its_signature() -> None:
    shown = {bare(signature).partition("(")[0] for signature in SIGNATURES}
    protocols = {"Action", "AsyncAction", "BoundAction", "SyncAction", "Sandbox", "Service", "policies"}
    assert set(HEADINGS) - shown == protocols


def drawn(cls: type[BaseException], prefix: str = "") -> Iterator[str]:
    """Draw the tree of errors below a class."""
    children = [c for c in vars(errors).values() if isinstance(c, type) and cls in c.__bases__]
    for child in children:
        last = child is children[-1]
        builtin = [b.__name__ for b in child.__bases__ if not issubclass(b, errors.TangramError)]
        yield f"{prefix}{'└── ' if last else '├── '}{child.__name__}" + (f" ({builtin[0]})" if builtin else "")
        yield from drawn(child, prefix + ("    " if last else "│   "))


def test_the_tree_of_errors_is_that_of_the_classes() -> None:
    assert TREE.splitlines() == ["TangramError", *drawn(errors.TangramError)]


def test_every_error_is_explained() -> None:
    section = PAGE.partition("## Errors\n")[2].partition("\n## ")[0]
    explained = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
    classes = {c.__name__ for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.TangramError)}
    assert classes - explained == {"TangramError", "UsageError", "InfrastructureError"}
    assert explained <= classes


@pytest.mark.parametrize("command", COMMANDS)
def test_the_options_of_a_command_are_those_that_it_has(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    section = PAGE.partition(f"\n`{command}`:")[2].partition("\n`")[0]
    documented = re.findall(r"^\| `(--[a-z-]+)", section, re.MULTILINE)
    try:
        code: object = main([*COMMANDS[command], "--help"])
    except SystemExit as ended:
        code = ended.code
    assert code == 0
    actual = re.findall(r"^ +(?:-h, )?(--[a-z-]+)", capsys.readouterr().out.partition("options:")[2], re.MULTILINE)
    assert documented == [option for option in actual if option != "--help"]


def test_the_commands_are_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    actual = re.findall(r"^  (\w+) ", capsys.readouterr().out, re.MULTILINE)
    section = PAGE.partition("## Command line\n")[2]
    shown = re.findall(r"^\| `(demo|doctor|report|replay|plan|simulate|bench)\b", section, re.MULTILINE)
    assert actual == list(dict.fromkeys(shown))


def test_the_layers_of_the_architecture_page_are_those_that_are_checked() -> None:
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    shown = page.partition("```text\n__main__\n")[2].partition("```")[0].splitlines()
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["id"] == "layers"]
    written = [[part for part in layer.split(" | ") if not part.startswith("(")] for layer in layers]
    assert ["__main__", *shown] == [" | ".join(parts) for parts in written]
