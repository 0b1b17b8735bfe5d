"""verl's model of a tool's schema, without what it leaves out.

verl keeps type, description and enum of each parameter and drops the rest: what a list holds, the fields of an object,
defaults. These models are verl's own with everything kept, so that the model that is trained sees the whole schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl.tools.schemas import (
    OpenAIFunctionParametersSchema,
    OpenAIFunctionPropertySchema,
    OpenAIFunctionSchema,
    OpenAIFunctionToolSchema,
)


class WholeProperty(OpenAIFunctionPropertySchema):
    """One parameter. verl's parsers of tool calls ask it for `model_dump()`, so that a plain dict will not do."""

    model_config = {"extra": "allow"}  # noqa: RUF012 - the form that pydantic asks for


class WholeParameters(OpenAIFunctionParametersSchema):
    """All parameters."""

    model_config = {"extra": "allow"}  # noqa: RUF012
    properties: dict[str, WholeProperty]  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]


class WholeFunction(OpenAIFunctionSchema):
    """The function."""

    model_config = {"extra": "allow"}  # noqa: RUF012
    parameters: WholeParameters  # pyright: ignore[reportIncompatibleVariableOverride]


class WholeToolSchema(OpenAIFunctionToolSchema):
    """The tool."""

    function: WholeFunction  # pyright: ignore[reportIncompatibleVariableOverride]


def verl_schema(schema: Mapping[str, Any]) -> OpenAIFunctionToolSchema:
    """Return what verl takes for the schema of a tool in the form of OpenAI; nothing of it is lost."""
    whole = WholeToolSchema.model_validate(schema)
    for told in whole.function.parameters.properties.values():
        _simplify(told)
    return whole


def _simplify(told: WholeProperty) -> None:
    """Say in words that a parameter may be null, if it has one type otherwise.

    verl's parser `qwen3_coder` reads a value as the type that the schema names, and null always; what has a list of
    types it takes for Python's, so that a text like 42 would reach the action as a number.
    """
    names = [told.type] if isinstance(told.type, str) else told.type
    types = [name for name in names if name != "null"]
    if len(types) != 1:
        return
    told.type = types[0]
    if types == names:
        return
    text = (told.description or "").rstrip(".")
    told.description = f"{text}. It may be null." if text else "It may be null."
    if told.enum is not None:
        told.enum = [value for value in told.enum if value is not None]
