"""What the parameters of workloads are held to; each error names the class, the parameter and its value."""

from __future__ import annotations

import math

from arl_tangram.errors import ConfigurationError


def check_positive(of: object, *names: str) -> None:
    """Refuse attributes that are not finite or not above 0.

    Raises:
        ConfigurationError: with the class, the attribute and its value.
    """
    for name in names:
        if not 0 < (value := getattr(of, name)) < math.inf:
            raise ConfigurationError(f"{type(of).__name__}({name}=) takes a number above 0, not {value!r}")


def check_least(of: object, *names: str) -> None:
    """Refuse attributes that are not finite or below 0.

    Raises:
        ConfigurationError: with the class, the attribute and its value.
    """
    for name in names:
        if not 0 <= (value := getattr(of, name)) < math.inf:
            raise ConfigurationError(f"{type(of).__name__}({name}=) takes a number from 0, not {value!r}")


def check_share(of: object, *names: str) -> None:
    """Refuse attributes that are not from 0 to 1.

    Raises:
        ConfigurationError: with the class, the attribute and its value.
    """
    for name in names:
        if not 0 <= (value := getattr(of, name)) <= 1:
            raise ConfigurationError(f"{type(of).__name__}({name}=) takes a share from 0 to 1, not {value!r}")


def check_whole(of: object, *names: str, least: int = 1) -> None:
    """Refuse attributes that are not whole numbers from `least`.

    Raises:
        ConfigurationError: with the class, the attribute and its value.
    """
    for name in names:
        value = getattr(of, name)
        if type(value) is not int or value < least:
            raise ConfigurationError(f"{type(of).__name__}({name}=) takes a whole number from {least}, not {value!r}")


def check_tool_share(of: object, tool_share: float) -> None:
    """Refuse a share of tools that leaves no time for them, or none to think.

    Raises:
        ConfigurationError: with the class and the value.
    """
    if not 0 < tool_share < 1:
        raise ConfigurationError(
            f"{type(of).__name__}(tool_share=) takes a share above 0 and below 1, not {tool_share!r}"
        )


def check_factor(factor: float) -> None:
    """Refuse a factor that is not finite or not above 0.

    Raises:
        ConfigurationError: with the value.
    """
    if not 0 < factor < math.inf:
        raise ConfigurationError(f"the factor of what is declared is a number above 0, not {factor!r}")
