"""What a function takes from a model: its schema in OpenAI's form, and its arguments, made from JSON. Pure."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_type_hints

from arl_tangram.errors import ArgumentsError, DefinitionError
from arl_tangram.integrations.rollouts.docstrings import described
from arl_tangram.integrations.rollouts.forms import Form, FormError, form_of, read_fields

_NAME = re.compile(r"[\w-]{1,64}", re.ASCII)
_KINDS: dict[Any, str] = {
    inspect.Parameter.POSITIONAL_ONLY: "it cannot be given by its name",
    inspect.Parameter.VAR_POSITIONAL: "a model gives arguments by name, and which ones must be known",
    inspect.Parameter.VAR_KEYWORD: "a model must be told which arguments there are",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Parameters:
    """What a function takes.

    Attributes:
        name: what the model calls it.
        schema: in OpenAI's form, complete.
        forms: of each parameter that the model gives.
    """

    name: str
    schema: dict[str, Any]
    forms: Mapping[str, Form]

    def read(self, arguments: object) -> dict[str, Any]:
        """Return the arguments as the function expects them: enumerations, dataclasses and tuples are made from JSON.

        Raises:
            ArgumentsError: they do not fit; the message is one that the model can use.
        """
        if not isinstance(arguments, Mapping):
            raise ArgumentsError(f"the arguments of {self.name} must be an object with a value for each name")
        required = self.schema["function"]["parameters"]["required"]
        try:
            return read_fields(arguments, self.forms, required)  # pyright: ignore[reportUnknownArgumentType]
        except ValueError as error:
            raise ArgumentsError(f"wrong arguments for {self.name}: {error}") from None


def function_schema(
    function: Callable[..., Any], *, name: str | None = None, without: Iterable[str] = ()
) -> dict[str, Any]:
    """Return what a model is to know of a function, in the form that OpenAI's interface has for tools.

    It is complete: items of lists, fields of dataclasses and TypedDicts, enumerations and defaults included. Types are
    those of the annotations; texts come from the docstring, in Google's style, or from `Annotated[T, "text"]`.

    Args:
        function: a function or an action, with an annotation for each parameter.
        name: what the model calls it; by default its own name.
        without: parameters that the model does not give.

    Raises:
        DefinitionError: something that cannot be expressed; the message names the function and the parameter.
    """
    return parameters_of(function, name=name, without=without).schema


def parameters_of(function: Callable[..., Any], *, name: str | None = None, without: Iterable[str] = ()) -> Parameters:
    """Return what a function takes from a model; see `function_schema`."""
    own = getattr(function, "__name__", repr(function))
    called = own if name is None else name
    if not isinstance(called, str) or not _NAME.fullmatch(called):
        raise DefinitionError(f"{own}: a tool's name has up to 64 letters, digits, '_' and '-', not {called!r}")
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception as error:
        raise DefinitionError(f"{own}: its annotations cannot be resolved: {error}") from error
    parameters = inspect.signature(function).parameters
    left_out = set(without)
    if unknown := sorted(left_out - parameters.keys()):
        raise DefinitionError(f"{own} has no parameter {unknown[0]!r}; it has {', '.join(parameters) or 'none'}")
    told = described(inspect.getdoc(function))
    if not told.text:
        raise DefinitionError(f"{own} has no docstring, which would tell the model what it does")
    forms = {
        key: _form(own, parameter, hints, told.parameters.get(key, ""))
        for key, parameter in parameters.items()
        if key not in left_out
    }
    required = [key for key in forms if parameters[key].default is inspect.Parameter.empty]
    schema = {
        "type": "function",
        "function": {
            "name": called,
            "description": told.text,
            "parameters": {
                "type": "object",
                "properties": {key: form.schema for key, form in forms.items()},
                "required": required,
            },
        },
    }
    return Parameters(called, schema, forms)


def _form(own: str, parameter: inspect.Parameter, hints: Mapping[str, Any], text: str) -> Form:
    if (why := _KINDS.get(parameter.kind)) is not None:
        raise DefinitionError(f"{own}: the parameter {parameter}: {why}")
    if parameter.name not in hints:
        raise DefinitionError(f"{own}: the parameter {parameter.name!r} has no annotation")
    try:
        form = form_of(hints[parameter.name])
    except FormError as error:
        raise DefinitionError(f"{own}: the parameter {parameter.name!r}: {error}") from None
    schema = {**form.schema, "description": form.schema.get("description", text)}
    if parameter.default is not inspect.Parameter.empty and _is_json(parameter.default):
        schema["default"] = parameter.default
    return dataclasses.replace(form, schema=schema)


def _is_json(value: Any) -> bool:
    try:
        return bool(json.loads(json.dumps(value, allow_nan=False)) == value)
    except (TypeError, ValueError):
        return False
