"""The block `tangram` of the trainer's configuration, checked when it is read; it knows neither verl nor Hydra."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, cast

from arl_tangram.errors import ConfigurationError

__all__ = ["Settings", "read_sample", "read_settings"]

_ADDRESSES = ("pools", "nodes", "setup", "reward")
_SAMPLE = ("image", "memory_gib")


@dataclass(frozen=True, slots=True)
class Settings:
    """What `+tangram.*` says about the runtime of a training job.

    Attributes:
        pools: `module:function` of the factory that returns a `Tangram`, which is not opened.
        nodes: `module:function` of what returns the sequence of `Node`; None for every machine.
        name: what the runtime is called in its job.
        lease_s: seconds after which a process that is not heard of loses what it holds.
        start_timeout_s: seconds until the runtime must be up.
        image: what the sandboxes of rollouts are made from, unless their sample says it; None for the pool's own.
        memory_gib: GiB that a rollout holds, unless its sample says it.
        deadline_s: seconds that a rollout has for its tools, from the start of its loop; None for any number.
        setup: `module:action` that runs in each rollout's sandbox before its first turn, or None.
        reward: `module:action` that scores each rollout in its own sandbox, or None.
    """

    pools: str
    nodes: str | None = None
    name: str = "tangram"
    lease_s: float = 30
    start_timeout_s: float = 120
    image: str | None = None
    memory_gib: float = 0
    deadline_s: float | None = None
    setup: str | None = None
    reward: str | None = None


def read_settings(config: Any) -> Settings:
    """Return what the trainer's configuration says in its block `tangram`.

    Args:
        config: the configuration of the whole job: a mapping, such as Hydra's.

    Raises:
        ConfigurationError: there is no such block, or it has an unknown key or a wrong value; all keys are listed.
    """
    block: object = cast("Mapping[str, Any]", config).get("tangram") if isinstance(config, Mapping) else None
    if not isinstance(block, Mapping):
        raise ConfigurationError(
            "the trainer's configuration has no block `tangram`; say at least +tangram.pools=module:function, which "
            f"returns the Tangram whose pools all workers share. {_known()}"
        )
    given = {str(key): value for key, value in cast("Mapping[object, Any]", block).items()}
    known = {field.name for field in fields(Settings)}
    if unknown := sorted(given.keys() - known):
        raise ConfigurationError(f"tangram has no key {_names(unknown)}. {_known()}")
    required = [field.name for field in fields(Settings) if field.default is MISSING]
    if missing := [name for name in required if given.get(name) is None]:
        raise ConfigurationError(f"tangram needs the key {_names(missing)}. {_known()}")
    for name in known & given.keys():
        given[name] = _checked(name, given[name], f"tangram.{name}")
    return Settings(**given)


def read_sample(extra_info: Mapping[str, Any], settings: Settings) -> Settings:
    """Return the settings of one sample: its `extra_info["tangram"]` may name an image and memory of its own.

    Raises:
        ConfigurationError: it is no mapping, or has another key or a wrong value.
    """
    own: object = extra_info.get("tangram")
    if own is None:
        return settings
    where = 'extra_info["tangram"]'
    if not isinstance(own, Mapping):
        raise ConfigurationError(f"{where} of a sample is a mapping, not {own!r}")
    given = {str(key): value for key, value in cast("Mapping[object, Any]", own).items() if value is not None}
    if unknown := sorted(given.keys() - set(_SAMPLE)):
        raise ConfigurationError(f"{where} of a sample has the keys image and memory_gib, not {_names(unknown)}")
    for name, value in given.items():
        given[name] = _checked(name, value, f"{where}[{name!r}]")
    return replace(settings, **given)


def _checked(name: str, value: Any, where: str) -> Any:
    """Return the value of a key.

    Raises:
        ConfigurationError: the key cannot have it.
    """
    default = next(field.default for field in fields(Settings) if field.name == name)
    if value is None and default is None:
        return None
    if name in {"lease_s", "start_timeout_s", "memory_gib", "deadline_s"}:
        return _number(value, where, least="from 0" if name == "memory_gib" else "above 0")
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{where} is a text, not {value!r}")
    if name in _ADDRESSES and not all(value.partition(":")):
        raise ConfigurationError(f"{where} is an address like my_agent:{name}, not {value!r}")
    return value


def _number(value: Any, where: str, *, least: str) -> float:
    """Return a number.

    Raises:
        ConfigurationError: it is none, or too small.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
        if math.isfinite(number) and (number > 0 or (number == 0 and least == "from 0")):
            return number
    raise ConfigurationError(f"{where} is a number {least}, not {value!r}")


def _names(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names)


def _known() -> str:
    return f"Its keys: {', '.join(field.name for field in fields(Settings))}"
