from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])

def rollout_trace_op(func: _F) -> _F: ...
