"""A question with a known answer: whether an engine that came back is the one that went. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, cast

from arl_tangram.errors import ConfigurationError
from arl_tangram.services.servers.answers import entries, fields

# What differs from answer to answer, at any depth.
_PASSING = frozenset(
    {"id", "created", "usage", "system_fingerprint", "metadata", "meta_info", "service_tier", "kv_transfer_params"}
)
_QUESTION = MappingProxyType(
    {"prompt": "The capital of France is", "max_tokens": 4, "temperature": 0, "seed": 0, "logprobs": 1}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What an engine is asked when it is opened and after each restore; its answer must stay the same.

    Attributes:
        path: of the server.
        body: what is sent as JSON; `model` is filled in if it is not there. It should ask for few tokens, at
            temperature 0, and for their log-probabilities.
        tolerance: by how much a number may differ, absolutely or as a share of it: kernels add in no fixed order.
        limit_s: seconds until an answer must be there.

    Raises:
        ConfigurationError: something of it is impossible.
    """

    path: str = "/v1/completions"
    body: Mapping[str, Any] = field(default_factory=lambda: _QUESTION)
    tolerance: float = 0.1
    limit_s: float = 60.0

    def __post_init__(self) -> None:
        if not isinstance(cast(object, self.path), str) or not self.path.startswith("/"):
            raise ConfigurationError(f"Probe(path={self.path!r}): a path begins with '/'")
        if not isinstance(cast(object, self.body), Mapping):
            raise ConfigurationError(f"Probe(body={self.body!r}): a mapping is needed, which is sent as JSON")
        for name, value in (("tolerance", self.tolerance), ("limit_s", self.limit_s)):
            number = cast(object, value)
            if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < math.inf:
                raise ConfigurationError(f"Probe({name}={value!r}): a number from 0 is needed")
        if not self.limit_s:
            raise ConfigurationError("Probe(limit_s=0): seconds above 0 are needed")
        try:
            json.dumps(dict(self.body), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"Probe(body=): it cannot be sent as JSON: {error}") from error


def difference(known: object, got: object, *, tolerance: float, where: str = "answer") -> str | None:
    """Return in words where an answer differs from the known one; None if it does not."""
    ours, theirs = fields(known), fields(got)
    if ours is not None and theirs is not None:
        return _of_mappings(ours, theirs, tolerance, where)
    first, second = entries(known), entries(got)
    if first is not None and second is not None:
        if len(first) != len(second):
            return f"{where} has {len(second)} entries instead of {len(first)}"
        pairs = enumerate(zip(first, second, strict=True))
        found = (difference(a, b, tolerance=tolerance, where=f"{where}[{n}]") for n, (a, b) in pairs)
        return next((each for each in found if each is not None), None)
    a, b = _number(known), _number(got)
    if a is not None and b is not None and math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance):
        return None
    return None if known == got else f"{where} is {got!r} instead of {known!r}"


def _of_mappings(known: Mapping[str, object], got: Mapping[str, object], tolerance: float, where: str) -> str | None:
    names = [name for name in known if name not in _PASSING]
    if missing := [name for name in names if name not in got]:
        return f"{where} has no {missing[0]!r}"
    if more := [name for name in got if name not in known and name not in _PASSING]:
        return f"{where} has {more[0]!r}, which was not there"
    found = (difference(known[name], got[name], tolerance=tolerance, where=f"{where}.{name}") for name in names)
    return next((each for each in found if each is not None), None)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
