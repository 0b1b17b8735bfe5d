"""Find what a configuration names by its address, such as `my_agent.tools:run_tests`."""

from __future__ import annotations

import importlib
import os
import socket
from collections.abc import Callable
from typing import Any

from arl_tangram.action import BoundAction, invocable_of
from arl_tangram.errors import ConfigurationError, UsageError


def find_function(address: str, *, where: str) -> Callable[..., Any]:
    """Return what an address names, which can be called.

    Args:
        address: `module:name`; the name may have dots, as that of a method of an object.
        where: the setting that holds the address; it begins the message of an error.

    Raises:
        ConfigurationError: no address, or nothing that this process can import and call.
    """
    found = _found(address, where)
    if not callable(found):
        raise ConfigurationError(f"{where}: {address!r} is {found!r}, which cannot be called")
    return found  # type: ignore[no-any-return]


def find_action(address: str, *, where: str) -> BoundAction[..., Any]:
    """Return the action that an address names; see `find_function`.

    Raises:
        ConfigurationError: no address, or nothing that this process can import, or no action.
    """
    found = _found(address, where)
    try:
        invocable_of(found)
    except UsageError as error:
        raise ConfigurationError(f"{where}: {address!r}: {error}") from None
    return found  # type: ignore[no-any-return]


def _found(address: object, where: str) -> Any:
    module, colon, name = address.partition(":") if isinstance(address, str) else ("", "", "")
    if not (colon and module and name) or ":" in name:
        raise ConfigurationError(f"{where} takes an address such as 'my_agent.tools:run_tests', not {address!r}")
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:
        text = f"cannot be imported in process {os.getpid()} on {socket.gethostname()}: {type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
            text += "; its folder must be on PYTHONPATH there"
        raise ConfigurationError(f"{where}: the module of {address!r} {text}") from error
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise ConfigurationError(f"{where}: there is no {address!r}: {error}") from None
    return found
