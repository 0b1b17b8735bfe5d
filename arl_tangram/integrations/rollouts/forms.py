"""What an annotation says of a value: how JSON Schema has it, and how it is made from JSON. Pure."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

Schema = dict[str, Any]


class FormError(ValueError):
    """An annotation that cannot be told to a model; the message says why."""


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """What is known of a value.

    Attributes:
        schema: JSON Schema; `type` is a name, or a list of names.
        read: makes the value from JSON; raises `ValueError` with a text that the model can use.
    """

    schema: Schema
    read: Callable[[Any], Any]

    @property
    def types(self) -> list[str]:
        """The types of JSON that it can have."""
        told = self.schema["type"]
        return [told] if isinstance(told, str) else told


def form_of(annotation: Any, within: tuple[Any, ...] = ()) -> Form:
    """Return what an annotation says.

    Args:
        annotation: resolved, with `Annotated` kept: its first string is the description.
        within: the classes and the named types around it.

    Raises:
        FormError: it cannot be told in JSON Schema, or in the part of it that all trainers can read.
    """
    while hasattr(annotation, "__supertype__") or type(annotation).__name__ == "TypeAliasType":
        if annotation in within:
            raise _endless(annotation)
        within = (*within, annotation)
        annotation = getattr(annotation, "__supertype__", None) or annotation.__value__
    origin, arguments = get_origin(annotation), get_args(annotation)
    if not isinstance(annotation, Hashable):
        raise FormError(f"{annotation} is no type")
    if origin is Annotated:
        inner = form_of(arguments[0], within)
        text = next((told for told in arguments[1:] if isinstance(told, str)), None)
        return inner if text is None else Form({**inner.schema, "description": text}, inner.read)
    found = _plain(annotation) if annotation in _PLAIN else _generic(origin, arguments, within)
    if found is None and isinstance(annotation, type):
        found = _class(annotation, within)
    if found is None:
        raise FormError(f"{_said(annotation)} cannot be told in JSON Schema" + _HINTS.get(annotation, ""))
    return found


def _generic(origin: Any, arguments: tuple[Any, ...], within: tuple[Any, ...]) -> Form | None:
    """Return what a generic type says, such as a union, or a list of something."""
    if origin is Literal:
        return _one_of([(value, value) for value in arguments])
    if origin in {Union, types.UnionType}:
        return _union([form_of(argument, within) for argument in arguments])
    if origin is tuple and arguments[1:] != (...,):
        return _tuple([form_of(argument, within) for argument in arguments])
    if origin in _MANY and arguments:
        return _many(form_of(arguments[0], within), _MANY[origin])
    if origin in {dict, Mapping} and arguments:
        return _mapping(arguments, within)
    return None


def _class(cls: type[Any], within: tuple[Any, ...]) -> Form | None:
    """Return what a class says: an enumeration, a dataclass or a TypedDict."""
    if issubclass(cls, enum.Enum):
        return _one_of([(one.value, one) for one in cls])
    if cls in within:
        raise _endless(cls)
    if dataclasses.is_dataclass(cls):
        return _dataclass(cls, (*within, cls))
    if is_typeddict(cls):
        return _typed_dict(cls, (*within, cls))
    return None


def type_of(value: Any) -> str:
    """Return what JSON calls the type of a value."""
    for kinds, name in _TYPES:
        if isinstance(value, kinds):
            return name
    return type(value).__name__


def _plain(annotation: Any) -> Form:
    name = _PLAIN[annotation]

    def read(value: Any) -> Any:
        given = type_of(value)
        if name == "integer" and given == "number" and float(value).is_integer():
            return int(value)
        if given != name and not (name == "number" and given == "integer"):
            raise _needed(name, value)
        return float(value) if name == "number" else value

    return Form({"type": name}, read)


def _one_of(pairs: Sequence[tuple[Any, Any]]) -> Form:
    """Return what an enumeration says: pairs of what JSON has, and of what is meant."""
    given = [value for value, _ in pairs]
    names = list(dict.fromkeys(type_of(value) for value in given))
    if not given or not set(names) <= {"string", "integer", "number", "boolean", "null"}:
        raise FormError("the values of an enumeration must be texts, numbers, booleans or None")
    known = {(type_of(value), value): meant for value, meant in pairs}

    def read(value: Any) -> Any:
        try:
            return known[type_of(value), value]
        except (KeyError, TypeError):
            raise ValueError(f"it must be one of {', '.join(map(repr, given))}, not {_short(value)}") from None

    return Form({"type": names[0] if len(names) == 1 else names, "enum": given}, read)


def _many(item: Form, make: Callable[[list[Any]], Any]) -> Form:
    def read(value: Any) -> Any:
        if type_of(value) != "array":
            raise _needed("array", value)
        return make([_at(f"[{number}]", item, one) for number, one in enumerate(value)])

    unique = {"uniqueItems": True} if make in {set, frozenset} else {}
    return Form({"type": "array", "items": item.schema, **unique}, read)


def _tuple(items: Sequence[Form]) -> Form:
    count = len(items)

    def read(value: Any) -> Any:
        if type_of(value) != "array" or len(value) != count:
            raise ValueError(f"an array of {count} items is needed, not {_short(value)}")
        return tuple(_at(f"[{n}]", item, one) for n, (item, one) in enumerate(zip(items, value, strict=True)))

    schema = {"type": "array", "prefixItems": [item.schema for item in items], "minItems": count, "maxItems": count}
    return Form(schema, read)


def _mapping(arguments: tuple[Any, ...], within: tuple[Any, ...]) -> Form:
    if arguments[0] is not str:
        raise FormError(f"the keys of an object in JSON are texts, not {_said(arguments[0])}")
    inner = form_of(arguments[1], within)

    def read(value: Any) -> Any:
        if type_of(value) != "object":
            raise _needed("object", value)
        return {str(key): _at(f"[{key!r}]", inner, one) for key, one in value.items()}

    return Form({"type": "object", "additionalProperties": inner.schema}, read)


def _dataclass(cls: type[Any], within: tuple[Any, ...]) -> Form:
    hints = get_type_hints(cls, include_extras=True)
    fields = [field for field in dataclasses.fields(cls) if field.init]
    missing = dataclasses.MISSING
    required = [f.name for f in fields if f.default is missing and f.default_factory is missing]
    return _object(cls, {field.name: form_of(hints[field.name], within) for field in fields}, required)


def _typed_dict(cls: Any, within: tuple[Any, ...]) -> Form:
    hints = get_type_hints(cls, include_extras=True)
    said = {name: get_origin(hint) for name, hint in hints.items()}  # annotations as text hide it from the class
    marked = {typing.Required: True, typing.NotRequired: False}
    inner = {name: form_of(get_args(hint)[0] if said[name] in marked else hint, within) for name, hint in hints.items()}
    return _object(dict, inner, [name for name in hints if marked.get(said[name], name in cls.__required_keys__)])


def _object(make: Callable[..., Any], inner: Mapping[str, Form], required: Sequence[str]) -> Form:
    def read(value: Any) -> Any:
        if type_of(value) != "object":
            raise _needed("object", value)
        return make(**read_fields(value, inner, required))

    properties = {name: form.schema for name, form in inner.items()}
    return Form({"type": "object", "properties": properties, "required": list(required)}, read)


def read_fields(value: Mapping[str, Any], inner: Mapping[str, Form], required: Sequence[str]) -> dict[str, Any]:
    """Make the values of an object's fields from JSON.

    Raises:
        ValueError: a field is missing, unknown, or of another form.
    """
    if unknown := [name for name in value if name not in inner]:
        raise ValueError(f"there is no {unknown[0]!r}, but {', '.join(map(repr, inner)) or 'nothing'}")
    if missing := [name for name in required if name not in value]:
        raise ValueError(f"{missing[0]!r} is missing")
    return {name: _at(name, inner[name], one) for name, one in value.items()}


def _union(members: Sequence[Form]) -> Form:
    """Return one form for several, as a list of types; what cannot be told apart by its type is refused."""
    names = [name for member in members for name in member.types]
    for name in ("array", "object"):
        if names.count(name) > 1:
            raise FormError(f"a union has more than one {name}; let a field or another parameter say which is meant")
    schema: Schema = {"type": list(dict.fromkeys(names))}
    for member in members:
        schema |= {key: told for key, told in member.schema.items() if key not in {"type", "enum"}}
    listed = [member for member in members if "enum" in member.schema]
    if listed:
        if any("enum" not in member.schema and member.types != ["null"] for member in members):
            raise FormError("a union has an enumeration beside what is none")
        values = [value for member in listed for value in member.schema["enum"]]
        schema["enum"] = list(dict.fromkeys([*values, None] if len(listed) < len(members) else values))

    def read(value: Any) -> Any:
        given = type_of(value)
        fit = [m for m in members if given in m.types or (given in {"integer", "number"} and "number" in m.types)]
        why: ValueError = _needed(" or ".join(schema["type"]), value)
        for member in fit:
            try:
                return member.read(value)
            except ValueError as error:
                why = error
        raise why

    return Form(schema, read)


def _at(place: str, form: Form, value: Any) -> Any:
    try:
        return form.read(value)
    except ValueError as error:
        text = str(error)
        raise ValueError(f"{place}{text}" if text.startswith("[") else f"{place}: {text}") from None


def _needed(name: str, value: Any) -> ValueError:
    return ValueError(f"{name} is needed, not {_short(value)}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MOST else f"{text[:_MOST]}…"


def _endless(annotation: Any) -> FormError:
    return FormError(f"{annotation.__name__} contains itself, which cannot be told in one piece")


def _said(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)


_MOST = 80
_PLAIN: dict[Any, str] = {
    str: "string", int: "integer", float: "number", bool: "boolean", None: "null", type(None): "null"
}  # fmt: skip
_MANY = cast(
    dict[Any, Callable[[list[Any]], Any]],
    {list: list, Sequence: list, Iterable: list, tuple: tuple, set: set, AbstractSet: set, frozenset: frozenset},
)
_TYPES: tuple[tuple[Any, str], ...] = (
    (bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (type(None), "null"),
    (Mapping, "object"), ((list, tuple), "array"),
)  # fmt: skip
_HINTS: dict[Any, str] = {
    Any: "; say which values it takes",
    list: "; say of what, such as list[str]",
    tuple: "; say of what, such as tuple[int, int]",
    dict: "; say of what, such as dict[str, int], or use a TypedDict or a dataclass",
}
