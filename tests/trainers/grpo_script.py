"""What the model of `test_main_ppo` says: it multiplies with its tool, and every other time it reads the result wrongly.

In the first rollout of one question it ends its own sandbox instead.
"""

from __future__ import annotations

import itertools
import re

from scripted import tool_call

FATAL = "What is 13 * 21?"
_asked = itertools.count()
_read = itertools.count()


def says(context: str) -> str:
    if printed := re.findall(r"<tool_response>\n(-?\d+)", context):
        return f"The answer is {int(printed[-1]) + next(_read) % 2}"
    if FATAL in context and next(_asked) == 0:
        return tool_call("shell", command="kill -KILL $PPID; sleep 60")
    a, b = re.search(r"What is (\d+) \* (\d+)", context).groups()
    return tool_call("code_interpreter", code=f"print({a} * {b})")
