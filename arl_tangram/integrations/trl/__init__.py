"""TRL: rewards of a whole batch, and rollouts with tools, on a runtime that all of them share.

Importing this package imports nothing of TRL; a name does, when it is first asked for, and only if the installed TRL is
one that works (`supported`).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from arl_tangram.integrations.trl import supported

if TYPE_CHECKING:
    from arl_tangram.integrations.trl.reward import batch_reward
    from arl_tangram.integrations.trl.rollouts import tool_rollouts
    from arl_tangram.integrations.trl.turns import Said

__all__ = [
    "Said",
    "batch_reward",
    "tool_rollouts",
]

_HOMES = {"Said": "turns", "batch_reward": "reward", "tool_rollouts": "rollouts"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    supported.check()
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
