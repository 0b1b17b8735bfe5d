"""VeRL by configuration: tools, rewards and agent loops of all its workers on one shared runtime.

Importing this package imports nothing of verl; a name does, when it is first asked for, and only if the installed verl
is one that works (`supported`).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from arl_tangram.integrations.verl import supported

if TYPE_CHECKING:
    from arl_tangram.integrations.verl.agent_loop import TangramToolAgentLoop
    from arl_tangram.integrations.verl.batch_manager import TangramBatchAgentLoopManager
    from arl_tangram.integrations.verl.function_tools import function_tool
    from arl_tangram.integrations.verl.manager import TangramAgentLoopManager
    from arl_tangram.integrations.verl.replay import TangramReplayBuffer, TangramReplayBufferAsync
    from arl_tangram.integrations.verl.reward import TangramRewardManager, compute_score
    from arl_tangram.integrations.verl.tool import TangramTool

__all__ = [
    "TangramAgentLoopManager",
    "TangramBatchAgentLoopManager",
    "TangramReplayBuffer",
    "TangramReplayBufferAsync",
    "TangramRewardManager",
    "TangramTool",
    "TangramToolAgentLoop",
    "compute_score",
    "function_tool",
]

_HOMES = {
    "TangramAgentLoopManager": "manager",
    "TangramBatchAgentLoopManager": "batch_manager",
    "TangramReplayBuffer": "replay",
    "TangramReplayBufferAsync": "replay",
    "TangramRewardManager": "reward",
    "TangramTool": "tool",
    "TangramToolAgentLoop": "agent_loop",
    "compute_score": "reward",
    "function_tool": "function_tools",
}
# Who loads tools can name our agent loop, which registers itself with verl when it is imported.
_WITH_LOOP = {"TangramTool", "function_tool"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    supported.check()
    if name in _WITH_LOOP:
        importlib.import_module(f"{__name__}.agent_loop")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
