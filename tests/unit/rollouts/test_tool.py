"""A tool has bounds to its waiting and its running, and takes from the model what the model may give."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Optional

import pytest

import arl_tangram as tangram
from arl_tangram import ArgumentsError, ConfigurationError, DefinitionError, Tangram
from arl_tangram.integrations.rollouts import Tool
from arl_tangram.testing import FakePool
from unit.rollouts import actions_here
from virtual_time import virtual


def test_bounds_are_those_said_else_those_of_the_action() -> None:
    tool = Tool.declare("unit.rollouts.actions_here:write", timeout_s=7, queue_timeout_s=8)
    assert (tool.action.spec.timeout, tool.action.spec.queue_timeout) == (7, 8)
    tool = Tool.declare(actions_here.lose)
    assert (tool.action.spec.timeout, tool.action.spec.queue_timeout) == (60, 50)
    assert Tool.declare(actions_here.write).action.spec.queue_timeout == 600


def test_a_tool_without_a_timeout_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"^tools\.yaml: unit.rollouts.actions_here:endless has no timeout"):
        Tool.declare(actions_here.endless, where="tools.yaml")
    assert Tool.declare(actions_here.endless, timeout_s=1).action.spec.timeout == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"timeout_s": 0}, "timeout_s takes finite seconds above 0"),
        ({"queue_timeout_s": "soon"}, "queue_timeout_s takes finite seconds"),
        ({"given": "truth"}, "given takes a list"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^here: {words}"):
        Tool.declare(actions_here.grade, where="here", **options)


def test_what_is_no_action_or_cannot_be_told_is_refused_with_the_place() -> None:
    with pytest.raises(ConfigurationError, match=r"^here: .*is not an action"):
        Tool.declare(actions_here.plain, where="here")  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match=r"^here: grade has no parameter 'turth'"):
        Tool.declare(actions_here.grade, given=["turth"], where="here")


def test_what_is_given_is_neither_told_to_the_model_nor_taken_from_it() -> None:
    tool = Tool.declare(actions_here.grade, name="submit", given=["truth", "weight"])
    assert tool.name == tool.schema["function"]["name"] == "submit"
    assert list(tool.schema["function"]["parameters"]["properties"]) == ["answer"]
    assert tool.arguments({"answer": "4"}, {"truth": "4", "other": 1}) == {"answer": "4", "truth": "4"}
    with pytest.raises(ArgumentsError, match="there is no 'truth', but 'answer'"):
        tool.arguments({"answer": "4", "truth": "4"}, {"truth": "5"})


@virtual
async def test_a_bound_action_stays_bound() -> None:
    tool = Tool.declare(actions_here.holder.say, timeout_s=9)
    async with Tangram(FakePool()):
        assert await tool.action(more="you") == "hello you"
    assert tool.action.spec.timeout == 9


@tangram.action(cpu=1, timeout=5)
async def many(
    text: str,
    number: int | None,
    either: Optional[str],  # noqa: UP045
    one: Literal["a", None],  # noqa: PYI061
    told: Annotated[str | None, "any"],
    anything: Any,
    default: str = "x",
) -> None:
    """Take many."""


def test_none_in_a_dataset_is_a_value_only_where_the_action_takes_none() -> None:
    names = ["text", "number", "either", "one", "told", "anything", "default"]
    tool = Tool.declare(many, given=names)
    assert tool.lacking(dict.fromkeys(names)) == ["text"]
    assert tool.arguments({}, dict.fromkeys(names)) == dict.fromkeys(names[1:-1])
    assert tool.lacking({"text": ""}) == names[1:-1]
