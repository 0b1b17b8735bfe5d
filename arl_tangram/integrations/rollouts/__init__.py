"""What every adapter for a trainer needs: tools for models, rollouts around their calls, and the runtime of a process.

It imports no trainer, and Ray only when a shared runtime is asked for.
"""

from __future__ import annotations

from arl_tangram.integrations.rollouts.addresses import find_action, find_function
from arl_tangram.integrations.rollouts.here import close_here, open_here, runtime_here
from arl_tangram.integrations.rollouts.json_schema import function_schema
from arl_tangram.integrations.rollouts.rollout import Rollout, Used, current_rollout, use_alone
from arl_tangram.integrations.rollouts.scoring import find_bounded, score, within_bounds
from arl_tangram.integrations.rollouts.step_metrics import StepMetrics
from arl_tangram.integrations.rollouts.tool import Tool
from arl_tangram.integrations.rollouts.wording import is_masked, text_of, words_for

__all__ = [
    "Rollout",
    "StepMetrics",
    "Tool",
    "Used",
    "close_here",
    "current_rollout",
    "find_action",
    "find_bounded",
    "find_function",
    "function_schema",
    "is_masked",
    "open_here",
    "runtime_here",
    "score",
    "text_of",
    "use_alone",
    "within_bounds",
    "words_for",
]
