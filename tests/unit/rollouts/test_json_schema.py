"""A schema says all that the annotations and the docstring say; what cannot be said is refused; arguments are made."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NewType, NotRequired, Optional, TypedDict

import pytest

from arl_tangram import ArgumentsError, DefinitionError
from arl_tangram.integrations.rollouts import function_schema
from arl_tangram.integrations.rollouts.json_schema import parameters_of
from unit.rollouts import actions_here

UserId = NewType("UserId", int)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Place(TypedDict):
    city: str
    zip: NotRequired[int]


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0
    tags: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Node:
    child: Node | None


def properties(function: Callable[..., Any]) -> dict[str, Any]:
    """Return what a schema says of each parameter, without the descriptions."""
    told = function_schema(function)["function"]["parameters"]["properties"]
    return {name: {key: said for key, said in one.items() if key != "description"} for name, one in told.items()}


def test_the_texts_are_those_of_the_docstring() -> None:
    def search(query: str, limit: Annotated[int, "how many"] = 5, *, exact: bool = False) -> str:
        """Find pages
        by meaning.

        Slow for long queries.

        Args:
            query (str): what to look for,
                in any language: say it plainly.
            exact: whether words must match.

        Returns:
            query: this is no parameter.
        """
        return query

    assert function_schema(search, name="web_search") == {
        "type": "function",
        "function": {
            "name": "web_search",
            "description": "Find pages by meaning.\nSlow for long queries.",
            "parameters": {
                "type": "object",
                "properties": {
                    "query": {
                        "type": "string", "description": "what to look for, in any language: say it plainly."
                    },
                    "limit": {"type": "integer", "description": "how many", "default": 5},
                    "exact": {"type": "boolean", "description": "whether words must match.", "default": False},
                },
                "required": ["query"],
            },
        },
    }  # fmt: skip


def test_all_that_annotations_say_is_told() -> None:
    def tool(
        a: list[dict[str, list[int]]],
        b: Optional[str],  # noqa: UP045 - the other way to write it
        c: Literal["x", 2] | None,
        d: Colour,
        e: Place,
        f: Point,
        g: tuple[int, str],
        h: tuple[float, ...],
        i: Mapping[str, bool],
        j: Sequence[Annotated[str, "a word"]],
        k: int | list[str] | None,
        m: UserId,
        n: set[int],
        o: Point | None = None,
        p: Any = 1,
    ) -> None:
        """Do it."""

    with pytest.raises(DefinitionError, match=r"'p': .*Any cannot be told"):
        function_schema(tool)
    tool.__annotations__["p"] = "bool"
    point = {
        "type": "object",
        "properties": {
            "x": {"type": "number"},
            "y": {"type": "number"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["x"],
    }
    assert properties(tool) == {
        "a": {
            "type": "array",
            "items": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}},
        },
        "b": {"type": ["string", "null"]},
        "c": {"type": ["string", "integer", "null"], "enum": ["x", 2, None]},
        "d": {"type": "string", "enum": ["red", "blue"]},
        "e": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "zip": {"type": "integer"}},
            "required": ["city"],
        },
        "f": point,
        "g": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
        "h": {"type": "array", "items": {"type": "number"}},
        "i": {"type": "object", "additionalProperties": {"type": "boolean"}},
        "j": {"type": "array", "items": {"type": "string", "description": "a word"}},
        "k": {"type": ["integer", "array", "null"], "items": {"type": "string"}},
        "m": {"type": "integer"},
        "n": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
        "o": {**point, "type": ["object", "null"], "default": None},
        "p": {"type": "boolean", "default": 1},
    }


def test_actions_and_bound_actions_are_functions() -> None:
    assert list(properties(actions_here.write)) == ["text"]
    assert list(properties(actions_here.holder.say)) == ["more"]
    told = function_schema(actions_here.grade, without=["truth", "weight"])["function"]["parameters"]
    assert (list(told["properties"]), told["required"]) == (["answer"], ["answer"])


class TypeAliasType:
    """What `type X = ...` makes, from Python 3.12 on."""

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self.__value__: Any = None


def test_named_types_are_what_they_name_unless_they_contain_themselves() -> None:
    row, tree = TypeAliasType("Row"), TypeAliasType("Tree")
    row.__value__, tree.__value__ = dict[str, int], list[tree] | int  # type: ignore[valid-type]
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    assert properties(refused(list[row])) == {"given": {"type": "array", "items": schema}}  # type: ignore[valid-type]
    with pytest.raises(DefinitionError, match="Tree contains itself"):
        function_schema(refused(tree))


def refused(annotation: Any) -> Callable[..., Any]:
    def tool(given):  # type: ignore[no-untyped-def]
        """Do it."""

    tool.__annotations__ = {"given": annotation}
    return tool


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (Any, "Any cannot be told"),
        (list, r"say of what, such as list\[str\]"),
        (dict, "TypedDict"),
        (dict[str, Any], "Any cannot be told"),
        (dict[int, str], "keys of an object in JSON are texts, not int"),
        (bytes, "bytes cannot be told"),
        (object, "object cannot be told"),
        (Callable[[], int], "cannot be told"),
        (list[int] | list[str], "more than one array"),
        (Point | dict[str, int], "more than one object"),
        (Literal["a"] | int, "an enumeration beside"),
        (Literal[b"a"], "texts, numbers"),
        (Node, "Node contains itself"),
        ([int], r"\[<class 'int'>\] is no type"),
        ({"type": "string"}, "is no type"),
    ],
    ids=str,
)
def test_what_cannot_be_expressed_is_refused(annotation: Any, words: str) -> None:
    with pytest.raises(DefinitionError, match=f"^tool: the parameter 'given': .*{words}"):
        function_schema(refused(annotation))


@pytest.mark.parametrize("number", [math.inf, math.nan])
def test_a_default_that_json_cannot_say_is_not_told(number: float) -> None:
    def tool(limit: float = number) -> None:
        """Do it."""

    assert properties(tool) == {"limit": {"type": "number"}}


def test_parameters_that_a_model_cannot_give_are_refused() -> None:
    def many(*words: str) -> None:
        """Do it."""

    def open_ended(**words: str) -> None:
        """Do it."""

    def by_place(word: str, /) -> None:
        """Do it."""

    def bare(word) -> None:  # type: ignore[no-untyped-def]
        """Do it."""

    def silent(word: str) -> None:
        pass

    def missing(word: Nowhere) -> None:  # type: ignore[name-defined]  # noqa: F821
        """Do it."""

    told = {
        many: r"\*words", open_ended: r"\*\*words", by_place: "by its name", bare: "'word' has no annotation",
        silent: "no docstring", missing: "cannot be resolved: name 'Nowhere'",
    }  # fmt: skip
    for function, words in told.items():
        with pytest.raises(DefinitionError, match=f"^{function.__name__}.*{words}"):
            function_schema(function)
    with pytest.raises(DefinitionError, match="has no parameter 'wrod'; it has word"):
        function_schema(bare, without=["wrod"])
    with pytest.raises(DefinitionError, match="not 'a name'"):
        function_schema(actions_here.write, name="a name")


def test_arguments_become_what_the_annotations_say() -> None:
    def tool(
        a: Colour, b: Point, c: tuple[int, str], d: set[int], e: float, f: Literal[1, "1"], g: int | list[int] | None,
        h: Place | None = None,
    ) -> None:  # fmt: skip
        """Do it."""

    said = {
        "a": "blue", "b": {"x": 1}, "c": [1, "2"], "d": [3, 3], "e": 2, "f": "1", "g": [1.0], "h": {"city": "Ulm"},
    }  # fmt: skip
    read = parameters_of(tool).read(said)
    assert read == {
        "a": Colour.BLUE, "b": Point(1.0), "c": (1, "2"), "d": {3}, "e": 2.0, "f": "1", "g": [1], "h": {"city": "Ulm"},
    }  # fmt: skip
    assert type(read["e"]) is float


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({}, "'names' is missing"),
        ({"names": ["a"], "name": "b"}, "there is no 'name', but 'names', 'point', 'colour'"),
        ({"names": ["a", 1]}, r"names\[1\]: string is needed, not 1"),
        ({"names": "a"}, "names: array is needed, not 'a'"),
        ({"names": [], "point": {"x": True}}, "point: x: number is needed, not True"),
        ({"names": [], "point": {"z": 1}}, "point: there is no 'z', but 'x', 'y', 'tags'"),
        ({"names": [], "colour": "green"}, "colour: it must be one of 'red', 'blue', not 'green'"),
        ({"names": [], "colour": ["red"]}, r"colour: it must be one of .* not \['red'\]"),
        ({"names": ["x" * 500, 1]}, "names"),
        (["a"], "an object"),
        ("a", "an object"),
        (None, "an object"),
    ],
    ids=str,
)
def test_arguments_that_do_not_fit_are_told_so_that_a_model_can_mend_them(said: Any, words: str) -> None:
    def tool(names: list[str], point: Point | None = None, colour: Colour = Colour.RED) -> None:
        """Do it."""

    with pytest.raises(ArgumentsError, match=words) as told:
        parameters_of(tool).read(said)
    assert len(str(told.value)) < 300
