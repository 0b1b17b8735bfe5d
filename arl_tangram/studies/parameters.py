"""What the command line sets of a workload, and of the machines that it is served on."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from arl_tangram.errors import ConfigurationError
from arl_tangram.simulate.workloads import CODING_BATCH, DeepSearch, Mopd, Testbed
from arl_tangram.studies.runs import Parameters

WORKLOADS: Mapping[str, Parameters] = {"coding": CODING_BATCH, "deepsearch": DeepSearch(), "mopd": Mopd()}
"""By their names on the command line, with the parameters of the published batches."""

_P = TypeVar("_P", Parameters, Testbed)


def with_settings(workload: Parameters, settings: Sequence[str]) -> tuple[Parameters, Testbed]:
    """Return a workload and machines with some parameters set, each by `name=value`.

    Raises:
        ConfigurationError: there is no such parameter, or its value is not possible.
    """
    machines = Testbed()
    of_workload, of_machines = _names(workload), _names(machines)
    for setting in settings:
        name, _, text = setting.partition("=")
        if name not in of_workload | of_machines:
            there = ", ".join([*of_workload, *of_machines])
            raise ConfigurationError(f"--set {setting}: there is no parameter {name!r}; there are {there}")
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            raise ConfigurationError(f"--set {setting}: {text!r} is no value") from None
        if name in of_workload:
            workload = _with(workload, name, value, setting)
        else:
            machines = _with(machines, name, value, setting)
    return workload, machines


def _names(of: Parameters | Testbed) -> dict[str, None]:
    return dict.fromkeys(field.name for field in fields(of))


def _with(of: _P, name: str, value: object, setting: str) -> _P:
    changed: Any = {name: value}
    try:
        return replace(of, **changed)
    except TypeError:
        raise ConfigurationError(f"--set {setting}: {value!r} is no value of this parameter") from None
