"""Tools of verl that are actions: what they take from YAML, what the model is told of them, and what their calls do."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop
from verl.tools.function_tool import FUNCTION_TOOL_REGISTRY, FunctionTool
from verl.tools.schemas import OpenAIFunctionToolSchema
from verl.tools.tool_registry import load_all_tools

import arl_tangram as tangram
from arl_tangram.context import open_runtimes
from arl_tangram.integrations.verl import TangramTool, compute_score, function_tool
from arl_tangram.testing import FakePool
from trainers import tool_actions
from trainers.loops import calls, load_tools, make_loop, sample, tool_texts, tools_file
from trainers.scripted import tool_call
from trainers.tiny_model import write_tiny_model

ACTIONS = "trainers.tool_actions"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


def tool(name: str, **config: Any) -> TangramTool:
    return TangramTool({"type": "native", "action": f"{ACTIONS}:{name}", **config})


async def call(made: TangramTool, arguments: Any, create_kwargs: dict[str, Any] | None = None) -> str | None:
    """Call a tool as verl does."""
    instance_id, _ = await made.create(create_kwargs=create_kwargs or {})
    try:
        response, reward, metrics = await made.execute(instance_id, arguments, agent_data=None)
    finally:
        await made.release(instance_id)
    assert (reward, metrics) == (None, {})
    return response.text


# What verl makes of the file.


def test_a_tool_is_made_in_the_datasets_process_without_a_runtime(tmp_path: Path) -> None:
    # verl makes its tools in each worker, in the trainer, and where it reads the data: there, nobody has opened one.
    before = set(threading.enumerate())
    (made,) = load_all_tools(str(tools_file(tmp_path, {"action": f"{ACTIONS}:add", "name": "plus"})), None)
    assert made.name == made.tool_schema.function.name == "plus"
    assert not open_runtimes
    assert not ray.is_initialized()
    assert set(threading.enumerate()) == before


@pytest.fixture
def loaded(tmp_path: Path) -> list[Any]:
    return load_tools(tmp_path, "add", "where")


async def test_several_tools_of_one_file_are_one_action_each(loaded: list[Any]) -> None:
    made = loaded
    assert [each.name for each in made] == ["add", "where"]
    async with tangram.Tangram(FakePool()):
        assert await call(made[0], {"a": 40, "b": 2}) == '{"sum": 42}'
        assert await call(made[1], {}) == "here"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {"action": f"{ACTIONS}:add", "timeout": 3, "colour": "red"},
            r"unknown: timeout, colour; it takes type, action,",
        ),
        ({"name": "add"}, r'missing: action, as "package.module:name"'),
        ({"action": f"{ACTIONS}:add", "pools": "x:y"}, r"each worker would have limits of its own.*\+tangram.pools="),
        ({"action": f"{ACTIONS}:add", "runtime": 3}, r"runtime is the name of a shared runtime, not 3"),
        ({"action": f"{ACTIONS}:add", "cores": 4, "num_workers": 8}, r"unknown: cores, num_workers.*\+tangram.pools="),
        ({"action": f"{ACTIONS}:nothing"}, r"trainers.tool_actions:nothing"),
        ({"action": "no_such_module:add"}, r"no_such_module"),
        ({"action": f"{ACTIONS}:Place"}, r"Place"),
        ({"action": f"{ACTIONS}:add", "given": "b"}, r"given takes a list"),
        ({"action": f"{ACTIONS}:add", "timeout_s": -1}, r"timeout_s"),
    ],
    ids=lambda value: None if isinstance(value, str) else ",".join(value),
)
def test_a_wrong_entry_is_refused_and_the_message_says_what_is_wrong(config: dict[str, Any], said: str) -> None:
    with pytest.raises(tangram.ConfigurationError, match=said):
        TangramTool({"type": "native", **config})


def test_a_tool_without_a_timeout_is_refused() -> None:
    with pytest.raises(tangram.ConfigurationError, match=r"endless has no timeout"):
        tool("endless")
    with pytest.raises(tangram.ConfigurationError, match=r"endless has no timeout"):
        function_tool(tool_actions.endless)
    assert tool("endless", timeout_s=5).tool.action.spec.timeout == 5


def test_what_no_schema_can_say_is_refused() -> None:
    with pytest.raises(tangram.DefinitionError, match=r"odd.*'value'"):
        tool("odd")
    with pytest.raises(tangram.DefinitionError, match=r"odd.*'value'"):
        function_tool(tool_actions.odd)


def test_a_schema_of_the_users_own_must_fit_the_action() -> None:
    def own(name: str, parameter: str) -> OpenAIFunctionToolSchema:
        parameters = {"type": "object", "properties": {parameter: {"type": "integer"}}}
        function = {"name": name, "description": "Adds.", "parameters": parameters}
        return OpenAIFunctionToolSchema.model_validate({"type": "function", "function": function})

    config = {"type": "native", "action": f"{ACTIONS}:add", "name": "plus"}
    assert TangramTool(config, own("plus", "a")).tool_schema == own("plus", "a")
    with pytest.raises(tangram.ConfigurationError, match=r"'plus', and 'minus' in its tool_schema"):
        TangramTool(config, own("minus", "a"))
    with pytest.raises(tangram.ConfigurationError, match=r"has the parameters c,.*it takes a, b"):
        TangramTool(config, own("plus", "c"))
    with pytest.raises(tangram.ConfigurationError, match=r"has the parameters b,.*it takes a$"):
        TangramTool({**config, "given": ["b"]}, own("plus", "b"))  # from the dataset: not the model's to say


# What the model is told.


async def test_a_schema_keeps_items_nested_properties_and_enums_through_verls_models(model: Path) -> None:
    loop = make_loop(ToolAgentLoop, model, calls(), [tool("search")])
    (told,) = loop.tool_schemas  # what verl puts into the prompt
    properties = told["function"]["parameters"]["properties"]
    assert properties["places"]["items"]["properties"]["tags"] == {"type": "array", "items": {"type": "string"}}
    assert properties["places"]["items"]["required"] == ["name", "tags"]
    assert properties["kind"]["enum"] == ["old", "new"]
    assert properties["near"]["additionalProperties"] == {"type": "number"}
    assert told["function"]["parameters"]["required"] == ["places", "kind"]


HERMES = (
    '<tool_call>{"name": "search", "arguments": {"places": [{"name": "x", "tags": ["y"]}], "kind": "old"}}</tool_call>'
)
CODER = """<tool_call>
<function=search>
<parameter=places>
[{"name": "x", "tags": ["y"]}]
</parameter>
<parameter=kind>
old
</parameter>
</function>
</tool_call>"""


# The second parser asks each property of the schema for `model_dump()`: a plain dict would not do.
@pytest.mark.parametrize(("form", "said"), [("hermes", HERMES), ("qwen3_coder", CODER)])
async def test_what_a_model_says_in_verls_formats_reaches_the_body(model: Path, form: str, said: str) -> None:
    loop = make_loop(ToolAgentLoop, model, lambda _, turn: "Done." if turn else said, [tool("search")], format=form)
    async with tangram.Tangram(FakePool()):
        output = await loop.run({}, **sample())
    assert tool_texts(loop, output) == ["1"]


OPTIONAL = {"text": "42", "count": "7", "sure": "true", "kind": "new"}


@pytest.mark.parametrize("form", ["hermes", "qwen3_coder"])
@pytest.mark.parametrize(
    ("said", "told"),
    [
        (OPTIONAL, ["42", 7, True, "new"]),
        ({"text": "[1]"}, ["[1]", None, None, None]),
        ({"text": "None"}, ["None", None, None, None]),
        ({"text": "null", "count": "null", "sure": "null", "kind": "null"}, [None, None, None, None]),
        ({}, [None, None, None, None]),
    ],
    ids=["values", "a list", "None", "null", "nothing"],
)
async def test_what_may_be_left_out_is_read_as_what_it_is(
    model: Path, form: str, said: dict[str, str], told: list[Any]
) -> None:
    # The parser of the second format asks the schema what a text is, and takes it for Python's if that is a list.
    if form == "hermes":
        values = dict(zip(OPTIONAL, told, strict=True))
        call = tool_call("perhaps", **{name: values[name] for name in said})
    else:
        given = "".join(f"<parameter={name}>\n{text}\n</parameter>\n" for name, text in said.items())
        call = f"<tool_call>\n<function=perhaps>\n{given}</function>\n</tool_call>"
    answers = [call, "Done."]
    loop = make_loop(ToolAgentLoop, model, lambda _, turn: answers[turn], [tool("perhaps")], format=form)
    async with tangram.Tangram(FakePool()):
        output = await loop.run({}, **sample())
    assert tool_texts(loop, output) == [json.dumps(told)]


def test_a_schema_says_what_may_be_null() -> None:
    schema = tool("perhaps").tool_schema.model_dump()["function"]["parameters"]["properties"]
    assert schema["text"] == {"type": "string", "description": "any. It may be null.", "enum": None, "default": None}
    assert (schema["kind"]["type"], schema["kind"]["enum"]) == ("string", ["old", "new"])
    assert schema["either"] == {"type": "string", "description": "one.", "enum": ["a", "b"], "default": "a"}
    assert schema["number"]["type"] == ["integer", "string", "null"]


def test_a_column_without_a_value_is_missing_unless_it_may_be_none() -> None:
    # A dataset fills with None what other samples have.
    made = tool("told", given=["secret", "size"])
    made.check_sample({"secret": "s", "size": None})
    with pytest.raises(tangram.ConfigurationError, match="takes secret from the dataset"):
        made.check_sample({"secret": None})
    tool("perhaps_told", given=["secret"]).check_sample({"secret": None})


async def test_what_the_dataset_left_empty_is_what_the_action_has_by_default() -> None:
    async with tangram.Tangram(FakePool()):
        made = tool("told", given=["secret", "size"])
        assert await call(made, {"question": "Q"}, {"secret": "s", "size": None}) == "Q s 3"
        perhaps = tool("perhaps_told", given=["secret"])
        assert await call(perhaps, {}, {"secret": None}) == "None"


# What a call does.


async def test_release_never_raises_and_create_acquires_nothing() -> None:
    made = tool("add")
    first, _ = await made.create()  # no runtime is open
    await made.release(first)
    await made.release(first)
    await made.release("nobody")
    async with tangram.Tangram(FakePool(cores=1)) as tg:
        created = [await made.create(create_kwargs={}) for _ in range(3)]
        assert tg.statistics().waiting == 0
        held = asyncio.Event()
        body = asyncio.create_task(_hold(held))
        await held.wait()
        waiting = asyncio.create_task(made.execute(created[0][0], {"a": 1}))
        while not tg.statistics().waiting:  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        for instance_id, _ in created:
            await made.release(instance_id)
        body.cancel()
        await asyncio.wait([body])
        assert await call(made, {"a": 1}) == '{"sum": 2}'  # what was cancelled holds nothing


@tangram.action(cpu=1)
async def _hold(held: asyncio.Event) -> None:
    held.set()
    await asyncio.Event().wait()


async def test_what_comes_from_the_dataset_is_not_the_models_to_say() -> None:
    made = tool("told", given=["secret", "size"])
    assert list(made.tool_schema.function.parameters.properties) == ["question"]
    async with tangram.Tangram(FakePool()):
        assert await call(made, {"question": "Why?"}, {"secret": "s", "ground_truth": 7}) == "Why? s 3"
        assert await call(made, {"question": "Why?"}, {"secret": "s", "size": 9}) == "Why? s 9"
        said = await call(made, {"question": "Why?", "secret": "mine"}, {"secret": "s"})
        assert said is not None
        assert said.startswith("Error: wrong arguments for told")


TEXTS = [
    ("fails", {"how": "ValueError"}, "Error: fails failed: ValueError: no such thing"),
    ("fails", {"how": "OutOfMemoryError"}, "Error: fails ran out of memory"),
    ("fails", {"how": "BodyExitedError"}, "Error: fails ended without a result"),
    ("fails", {"how": "SandboxLostError"}, "Error: fails is not available"),
    ("add", {"a": "x"}, "Error: wrong arguments for add: "),
    ("add", {}, "Error: wrong arguments for add: "),
    ("add", {"a": 1, "c": 2}, "Error: wrong arguments for add: "),
    ("add", [1, 2], "Error: the arguments of add must be an object"),
]


@pytest.mark.parametrize(("name", "arguments", "text"), TEXTS, ids=[f"{t[0]}-{t[1]}" for t in TEXTS])
async def test_errors_reach_the_model_as_short_texts(name: str, arguments: Any, text: str) -> None:
    async with tangram.Tangram(FakePool()):
        said = await call(tool(name), arguments)
    assert said is not None
    assert said.startswith(text)
    assert len(said) < 400
    assert "0123abcd" not in said
    assert "4242" not in said


async def test_waiting_is_bounded_apart_from_running(tmp_path: Path) -> None:
    async with tangram.Tangram(FakePool(cores=1)):
        held = asyncio.Event()
        body = asyncio.create_task(_hold(held))
        await held.wait()
        assert await call(tool("add", queue_timeout_s=0.05, timeout_s=60), {"a": 1}) == "Error: add is not available"
        body.cancel()
        await asyncio.wait([body])
    async with tangram.Tangram(tangram.LocalPool(cores=1)):
        said = await call(tool("run", timeout_s=0.2, queue_timeout_s=60), {"command": "sleep 60"})
    assert said == "Error: run ran for too long and was stopped"


async def test_without_our_loop_each_call_has_a_sandbox_of_its_own(model: Path) -> None:
    turns = [("note", {"line": "first"})], [("note", {"line": "second"})]
    loop = make_loop(ToolAgentLoop, model, calls(*turns), [tool("note")])
    async with tangram.Tangram(tangram.LocalPool(cores=1)):
        output = await loop.run({}, **sample())
    assert tool_texts(loop, output) == ["first", "second"]


async def test_nothing_of_ours_runs_on_the_default_executor() -> None:
    loop = asyncio.get_running_loop()

    def refused(*_: object) -> None:
        raise AssertionError("the default executor was used, which verl needs for its tokenizer")

    tool_actions.THREADS.clear()
    loop.run_in_executor, before = refused, loop.run_in_executor  # type: ignore[method-assign,assignment]
    try:
        async with tangram.Tangram(FakePool()):
            assert await call(tool("where"), {}) == "here"
            assert await call(tool("add"), {"a": 1}) == '{"sum": 2}'
    finally:
        loop.run_in_executor = before  # type: ignore[method-assign]
    assert threading.current_thread().name not in tool_actions.THREADS
    assert len(tool_actions.THREADS) == 1


# Function tools.


FILE = """
import arl_tangram as tangram
from arl_tangram.integrations.verl import function_tool
from trainers.tool_actions import search

function_tool(search, name="find")

@function_tool
@tangram.action(cpu=1, timeout=60)
async def double(n: int) -> int:
    '''Double.

    Args:
        n: a number.
    '''
    return 2 * n
"""


@pytest.fixture
def functions(tmp_path: Path) -> Iterator[list[FunctionTool]]:
    path = tmp_path / "functions.py"
    path.write_text(FILE)
    yield load_all_tools(None, str(path))
    for name in ("find", "double"):
        del FUNCTION_TOOL_REGISTRY[name]


async def test_an_action_is_a_function_tool_with_its_whole_schema(functions: list[FunctionTool], model: Path) -> None:
    double, find = functions  # verl sorts them by name
    assert (double.name, find.name) == ("double", "find")
    assert all(each.is_async for each in functions)  # else verl calls them on threads of the default executor
    assert "items" in find.tool_schema.model_dump()["function"]["parameters"]["properties"]["places"]
    loop = make_loop(ToolAgentLoop, model, calls([("double", {"n": 21}), ("double", {"n": "x"})]), functions)
    async with tangram.Tangram(FakePool()):
        output = await loop.run({}, **sample())
    told = tool_texts(loop, output)
    assert told[0] == "42"
    assert told[1].startswith("Error: wrong arguments for double")


def test_two_function_tools_of_one_name_are_refused() -> None:
    assert function_tool(tool_actions.add, name="once") is tool_actions.add
    try:
        with pytest.raises(tangram.ConfigurationError, match=r"'once' is registered already"):
            function_tool(name="once")(tool_actions.where)
    finally:
        FUNCTION_TOOL_REGISTRY.pop("once")


def test_an_action_is_a_coroutine_function_for_verl_as_tool_and_reward() -> None:
    function_tool(tool_actions.add, name="plus")
    assert FUNCTION_TOOL_REGISTRY.pop("plus").is_async
    assert inspect.iscoroutinefunction(tool_actions.add)  # verl asks this of a reward function: an action can be one
    assert inspect.iscoroutinefunction(compute_score)
