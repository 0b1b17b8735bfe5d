"""Environment variables for a server, checked when it is declared; messages have no values, which may be secret."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

from arl_tangram.errors import ConfigurationError
from arl_tangram.managers.gpu.discovery.visible import ORDER_VARIABLE, VARIABLE


def checked_variables(value: object, what: str) -> Mapping[str, str]:
    """Return a copy that nobody changes; `what` begins the message.

    Raises:
        ConfigurationError: it is no mapping of texts, or one of them cannot be a variable, or says which devices the
            server is to see.
    """
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"{what}: env= takes {{name: text}}, not a {type(value).__qualname__}")
    pairs = dict(cast("Mapping[object, object]", value))
    for name, text in pairs.items():
        if not is_text(name) or not name or "=" in str(name):
            raise ConfigurationError(f"{what}: env= takes {{name: text}}; {name!r} is no name of a variable")
        if name in (VARIABLE, ORDER_VARIABLE):
            raise ConfigurationError(f"{what}: env= must not have {name}: the server sees the devices it is given")
        if not is_text(text):
            raise ConfigurationError(f"{what}: env= takes {{name: text}}; that of {name!r} is no text without NUL")
    return MappingProxyType(cast("dict[str, str]", pairs))


def is_text(value: object) -> bool:
    """Return whether a process can be given it as a word."""
    return isinstance(value, str) and "\0" not in value
